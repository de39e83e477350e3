"""Answers by name to triples with one gap, from the scores of a model; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from nscaching.config import check_type
from nscaching.data.frames import PARTS, Passed, read_column
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Longs, Side
from nscaching.data.types import RelationType
from nscaching.errors import DIVERGED, UserError, check_bounds, flag
from nscaching.evaluation.calibration import Calibration, add_probabilities

if TYPE_CHECKING:
    import pandas as pd

Known = Literal["hide", "mark"]
Likely = tuple[Calibration | None, float | None]  # what turns scores into probabilities, the prior
Scored = npt.NDArray[np.float32]


class Scores(Protocol):
    """The scores of a model, as arrays."""

    def of_entities(self, side: Side, anchor: Longs, relation: Longs) -> Scored:
        """Score every entity as the answer of queries [n] → [n, |E|]."""

    def of_relations(self, head: Longs, tail: Longs) -> Scored:
        """Score every relation between heads [n] and tails [n] → [n, |R|]."""

    def at_once(self) -> int:
        """Return how many queries to score at once, so that their scores fit into memory."""


class Answers(list[dict[str, Any]]):
    """A row for each answer, as ``pandas.DataFrame`` takes them; names are those of the data."""

    def __init__(self, rows: Sequence[dict[str, Any]], queries: Sequence[dict[str, Any]]) -> None:
        super().__init__(rows)
        self.queries = list(queries)
        """The same by query, with labels: what ``nscaching predict --json`` prints of one."""

    def to_pandas(self) -> pd.DataFrame:
        try:
            import pandas as pd
        except ImportError:
            raise UserError("to_pandas needs pandas: pip install pandas") from None
        return pd.DataFrame(list(self))


class Question:
    """Triples by id, at most one part of them the gap: ``ids`` [3, n], with zeros for the gap."""

    def __init__(self, graph: KnowledgeGraph, *given: Passed) -> None:
        """Read head, relation and tail: each is one name or id, or many, or None."""
        self.graph = graph
        gaps = [place for place, part in enumerate(given) if part is None]
        if len(gaps) > 1:
            raise UserError("give at least two of head, relation and tail")
        self.gap = gaps[0] if gaps else None
        self.many = any(not (part is None or _is_one(part)) for part in given)
        columns = [self._read(*each) for each in zip(given, PARTS, strict=True)]
        sizes = {len(column) for column in columns if len(column) != 1} or {1}
        if len(sizes) > 1:
            different = " and ".join(f"{size:,}" for size in sorted(sizes))
            raise UserError(f"head, relation and tail must be equally many, not {different}")
        self.ids = np.stack([np.resize(column, *sizes) for column in columns])

    def _read(self, given: Passed, part: str) -> Ids:
        if given is None:
            return np.zeros(1, dtype=np.int32)
        names = [given] if _is_one(given) else read_column(list(given), part, "query")
        return self.graph.column_ids(PARTS.index(part), names)

    @property
    def side(self) -> Side | None:
        """Which entity is asked for; None: the relation, or nothing."""
        return {0: Side.HEAD, 2: Side.TAIL}.get(-1 if self.gap is None else self.gap)

    def labels(self, row: int) -> dict[str, str | None]:
        """Return the labels of head, relation and tail of one triple; of the gap None."""
        return {
            part: None if place == self.gap else self.label(place, int(self.ids[place, row]))
            for place, part in enumerate(PARTS)
        }

    def label(self, place: int | None, number: int) -> str:
        return (self.graph.relation_label if place == 1 else self.graph.label)(number)

    def name(self, place: int | None, number: int) -> str:
        return (self.graph.relations if place == 1 else self.graph.entities)[number]

    def rows(self, row: int, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the answers to one query as rows of a table."""
        number = {"query": row} if self.many else {}
        names = {part: self.name(i, int(self.ids[i, row])) for i, part in enumerate(PARTS)}
        found = []
        for answer in answers:
            rest = dict(answer)
            if self.gap is not None:
                names[PARTS[self.gap]] = rest.pop("name")
            found.append({**number, **names, **rest})
        return found


def _is_one(given: Passed) -> bool:
    return isinstance(given, str | int | np.integer)


def known_answers(graph: KnowledgeGraph, gap: int, ids: Ids) -> list[dict[int, str]]:
    """Return the known answers of queries, and the split that holds each.

    The queries are ids [3, n] of head, relation and tail; ``gap`` is the row that is asked for.
    """
    one, other = (place for place in range(3) if place != gap)
    sizes = len(graph.entities), len(graph.relations), len(graph.entities)
    found: list[dict[int, str]] = [{} for _ in range(ids.shape[1])]
    for split in reversed(SPLITS):  # of several splits, the first one is named
        triples = graph.split(split)
        for place in (one, other):
            asked = np.zeros(sizes[place], dtype=bool)
            asked[ids[place]] = True
            triples = triples[asked[triples[:, place]]]
        columns = triples[:, one], triples[:, other], triples[:, gap]
        index = AnswerIndex.build(*columns, sizes[other])
        for row, answer in zip(*index.known(ids[one], ids[other]), strict=True):
            found[row][int(answer)] = split
    return found


def ask(
    scores: Scores,
    question: Question,
    top: int = 10,
    known: Known = "hide",
    any_type: bool = False,
    likely: Likely = (None, None),
) -> Answers:
    """Rank the answers to queries of one gap, the most plausible first; see ``predict``."""
    gap = question.gap
    assert gap is not None
    check_bounds("top", top, 1)
    check_type(flag("known"), Known, known)
    type_of = cache(lambda relation: RelationType.of(question.graph.train, relation))
    facts = known_answers(question.graph, gap, question.ids)
    queries: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for row, scored in enumerate(_scored(scores, question)):
        if not np.isfinite(scored).all():
            raise UserError(DIVERGED)
        candidates = Candidates(scored)
        if known == "hide":
            candidates.leave_out(list(facts[row]))
        head, relation, tail = question.ids[:, row].tolist()
        if question.side is not None:
            anchor, _ = question.side.query(head, tail)
            kind = type_of(relation)
            candidates.mark_type(kind.entities(question.side))
            if not any_type:
                if kind.is_closed(question.side):
                    candidates.sort_by_type()
                if not kind.may_loop and anchor not in facts[row]:
                    candidates.leave_out([anchor])
        shown = candidates.best(top)
        found = [
            {
                "rank": rank,
                "name": question.name(gap, answer),
                "label": question.label(gap, answer),
                "score": float(scored[answer]),
                "known": facts[row].get(answer, ""),
                **candidates.mark(answer),
            }
            for rank, answer in enumerate(shown, 1)
        ]
        left_out = len(facts[row]) if known == "hide" else 0
        relations = np.array(shown) if gap == 1 else np.full(len(shown), relation)
        calibration, asked_prior = likely
        prior = add_probabilities(calibration, found, relations, asked_prior)
        labels = question.labels(row) | prior
        queries.append({**labels, "known_facts_left_out": left_out, "answers": found})
        rows += question.rows(row, found)
    return Answers(rows, queries)


def _scored(scores: Scores, question: Question) -> Iterator[Scored]:
    """Yield the scores of all candidates for each query; a product scores many queries at once."""
    size = scores.at_once()
    for begin in range(0, question.ids.shape[1], size):
        head, relation, tail = question.ids[:, begin : begin + size].astype(np.int64)
        if question.side is None:
            yield from scores.of_relations(head, tail)
        else:
            anchor, _ = question.side.query(head, tail)
            yield from scores.of_entities(question.side, anchor, relation)


class Candidates:
    """The candidates for the gap of one query: which may be shown, and which go first."""

    def __init__(self, scores: Scored) -> None:
        self.scores = scores
        self.allowed = np.ones(len(scores), dtype=bool)
        self.first = np.ones(len(scores), dtype=bool)
        self.of_relation: npt.NDArray[np.bool_] | None = None

    def leave_out(self, candidates: list[int]) -> None:
        self.allowed[candidates] = False

    def mark_type(self, seen: Ids) -> None:
        """Mark the entities that the relation was seen with on the asked side in training."""
        self.of_relation = np.zeros(len(self.scores), dtype=bool)
        self.of_relation[seen] = True

    def sort_by_type(self) -> None:
        if self.of_relation is not None:
            self.first = self.of_relation

    def mark(self, candidate: int) -> dict[str, bool]:
        return (
            {} if self.of_relation is None else {"of_relation": bool(self.of_relation[candidate])}
        )

    def best(self, count: int) -> list[int]:
        """Return the best candidates by score, those that go first before the others."""
        found: list[int] = []
        for group in (self.first, ~self.first):
            if left := count - len(found):
                candidates = np.flatnonzero(group & self.allowed)
                found += _highest(self.scores, candidates, left).tolist()
        return found


def _highest(scores: Scored, candidates: Longs, count: int) -> Longs:
    """Return the candidates of the highest scores, equal ones by id: a sort of few of them."""
    mine = scores[candidates]
    if count < len(mine):
        enough = mine >= np.partition(mine, len(mine) - count)[len(mine) - count]
        candidates, mine = candidates[enough], mine[enough]
    return candidates[np.argsort(-mine, kind="stable")[:count]]
