"""The shapes of the answers: JSON, and what the templates read. The OpenAPI document has them."""

from __future__ import annotations

from typing import Any, TypedDict


class Named(TypedDict):
    """An entity or a relation: the name to ask with, and the label to read."""

    name: str
    label: str


class Figures(TypedDict):
    """The ranking of a split that training recorded."""

    split: str
    mrr: float
    mr: float
    hits_at_1: float
    hits_at_10: float


class RunInfo(TypedDict):
    """A run."""

    run: str
    data: str
    model: str
    sampler: str
    dim: int
    epoch: int
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    figures: Figures | None
    probabilities: bool
    cache: bool


class Home(TypedDict):
    """The runs that are served."""

    version: str
    runs: list[RunInfo]


class Found(Named):
    """An entity or a relation that a text finds, and how many facts have it."""

    facts: int


class Search(TypedDict):
    """What a text finds."""

    text: str
    entities: list[Found]
    relations: list[Found]


class Overview(TypedDict):
    """A run, and where to begin."""

    about: RunInfo
    largest: list[Found]
    relations: list[Found]


class Other(Named):
    """The other entity of a fact, and the split that holds the fact."""

    split: str


class FactGroup(TypedDict):
    """The facts of an entity with one relation; the others are on this side."""

    relation: Named
    side: str
    count: int
    others: list[Other]


class Prediction(TypedDict):
    """A triple that the data do not hold, and the chance that it is right."""

    head: Named
    relation: Named
    tail: Named
    asked: str
    score: float
    probability: float | None


class Neighbour(Named):
    """An entity with a vector near that of another."""

    cosine: float


class Entity(TypedDict):
    """An entity."""

    entity: Named
    facts: int
    groups: list[FactGroup]
    predictions: list[Prediction]
    neighbours: list[Neighbour]


class FactList(TypedDict):
    """A page of the facts of an entity with one relation."""

    entity: Named
    start: int
    group: FactGroup


class Answer(Named):
    """An answer to a question."""

    rank: int
    score: float
    probability: float | None
    known: str
    of_relation: bool | None


class Question(TypedDict):
    """A question and its best answers."""

    head: Named | None
    relation: Named | None
    tail: Named | None
    known_facts_left_out: int
    fitted_on_queries: int | None
    answers: list[Answer]


class RelationFigures(TypedDict):
    """What the data say of a relation."""

    relation: Named
    triples: int
    heads: int
    tails: int
    tails_per_head: float
    heads_per_tail: float
    mapping: str
    kinds: list[str]
    inverse: list[Named]


class RelationList(TypedDict):
    """All relations, those with most triples first."""

    relations: list[RelationFigures]


class Counterpart(TypedDict):
    """A relation that repeats another one."""

    relation: Named
    kind: str
    common: int
    share: float


class Typical(Named):
    """An entity that often stands on a side of a relation."""

    count: int
    share: float


class Relation(TypedDict):
    """A relation, with its typical heads and tails."""

    figures: RelationFigures
    counterparts: list[Counterpart]
    heads: list[Typical]
    tails: list[Typical]
    examples: list[list[Named]]


class Reason(TypedDict):
    """A training fact that speaks for a triple."""

    head: str
    relation: str
    tail: str
    influence: float


class Similar(Reason):
    """A fact of the same relation between entities with near vectors."""

    nearness: float


class Step(TypedDict):
    """A step of a path."""

    relation: str
    inverse: bool


class Path(TypedDict):
    """Relations that lead from head to tail, and how often they come with the relation asked."""

    steps: list[Step]
    confidence: float
    pairs: int
    support: int
    facts: list[Reason]


class Explanation(TypedDict):
    """Why a triple is plausible, or not."""

    head: Named
    relation: Named
    tail: Named
    score: float
    probability: float | None
    known: str
    similar: list[Similar]
    paths: list[Path]
    facts: list[Reason]
    facts_compared: int


class Cached(Named):
    """A cached entity, with its score by the run's model."""

    score: float
    known: str
    of_relation: bool


class CacheEpoch(TypedDict):
    """The cache of a query after an epoch."""

    epoch: int
    slots: int
    distinct: int
    known: int
    of_relation: int
    entities: list[Cached]


class Cache(TypedDict):
    """The cache of a query over the epochs that were kept, beside the answers of the model."""

    head: Named | None
    relation: Named
    tail: Named | None
    epochs: list[CacheEpoch]
    now: list[Answer]


class Point(Named):
    """An entity on the map; kind is a place in the list of types."""

    x: float
    y: float
    kind: int
    facts: int


class Map(TypedDict):
    """The most linked entities within a part of the map."""

    method: str
    methods: list[str]
    kinds: list[str]
    entities: int
    inside: int
    points: list[Point]
    focus: Point | None


class Side(TypedDict):
    """The answers of one of two runs; other_rank is the place that the other run gives."""

    run: str
    question: Question | None
    missing: str
    other_rank: list[int | None]


class Comparison(TypedDict):
    """Two runs on the same question."""

    runs: list[Side]


class Report(TypedDict):
    """What training recorded: lines of metrics.jsonl."""

    about: RunInfo
    history: list[dict[str, Any]]
