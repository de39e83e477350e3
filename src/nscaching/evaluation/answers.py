"""Answers by name to triples with one gap, from the scores of a model; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nscaching.config import check_type
from nscaching.data.frames import PARTS, Passed, read_column
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.data.types import RelationType
from nscaching.errors import UserError, check_bounds, flag
from nscaching.evaluation.calibration import Calibration, add_chances
from nscaching.evaluation.shortlist import Scores, candidates

if TYPE_CHECKING:
    import pandas as pd

Known = Literal["hide", "mark"]
Likely = tuple[Calibration | None, float | None]  # what turns scores into probabilities, the prior


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
    """Triples by id, at most one part of them the gap."""

    def __init__(self, graph: KnowledgeGraph, ids: Ids, gap: int | None, many: bool) -> None:
        self.graph = graph
        self.ids = ids  # [3, n], zeros for the gap
        self.gap = gap
        self.many = many  # asked as a list, even if of one

    @classmethod
    def read(cls, graph: KnowledgeGraph, *given: Passed) -> Question:
        """Read head, relation and tail: each is one name or id, or many, or None."""
        gaps = [place for place, part in enumerate(given) if part is None]
        if len(gaps) > 1:
            raise UserError("give at least two of head, relation and tail")
        many = any(not (part is None or _is_one(part)) for part in given)
        columns = [_read(graph, *each) for each in zip(given, PARTS, strict=True)]
        sizes = {len(column) for column in columns if len(column) != 1} or {1}
        if len(sizes) > 1:
            different = " and ".join(f"{size:,}" for size in sorted(sizes))
            raise UserError(f"head, relation and tail must be equally many, not {different}")
        ids = np.stack([np.resize(column, *sizes) for column in columns])
        return cls(graph, ids, gaps[0] if gaps else None, many)

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


def _read(graph: KnowledgeGraph, given: Passed, part: str) -> Ids:
    if given is None:
        return np.zeros(1, dtype=np.int32)
    names = [given] if _is_one(given) else read_column(list(given), part, "query")
    return graph.column_ids(PARTS.index(part), names)


def _is_one(given: Passed) -> bool:
    return isinstance(given, str | int | np.integer)


def known_answers(graph: KnowledgeGraph, gap: int, ids: Ids) -> list[dict[int, str]]:
    """Return the known answers of queries, and the split that holds each.

    The queries are ids [3, n] of head, relation and tail; ``gap`` is the row that is asked for.
    """
    one, other = (place for place in range(3) if place != gap)
    sizes = len(graph.entities), len(graph.relations), len(graph.entities)
    indices = {}
    for split in SPLITS:
        triples = graph.split(split)
        for place in (one, other):
            asked = np.zeros(sizes[place], dtype=bool)
            asked[ids[place]] = True
            triples = triples[asked[triples[:, place]]]
        columns = triples[:, one], triples[:, other], triples[:, gap]
        indices[split] = AnswerIndex.build(*columns, sizes[other])
    return _by_split(indices, ids[one], ids[other])


def _by_split(indices: dict[str, AnswerIndex], one: Ids, other: Ids) -> list[dict[int, str]]:
    """Return the answers of each query [n] with the split that has it, of several the first."""
    found: list[dict[int, str]] = [{} for _ in one]
    for split, index in reversed(indices.items()):
        for row, answer in zip(*index.known(one, other), strict=True):
            found[row][int(answer)] = split
    return found


class Recall:
    """What questions look up in a graph, kept: the twin of ``known_answers`` for many questions.

    Each index is built when a question first needs it.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self._indices: dict[int, dict[str, AnswerIndex]] = {}  # gap → split → answers
        self.type_of = cache(self._type_of)

    def _type_of(self, relation: int) -> RelationType:
        return RelationType.of(self.graph.train, relation)

    def known(self, gap: int, ids: Ids) -> list[dict[int, str]]:
        one, other = (place for place in range(3) if place != gap)
        if gap not in self._indices:
            size = len(self.graph.relations if other == 1 else self.graph.entities)
            self._indices[gap] = {
                split: AnswerIndex.build(rows[:, one], rows[:, other], rows[:, gap], size)
                for split in SPLITS
                for rows in [self.graph.split(split)]
            }
        return _by_split(self._indices[gap], ids[one], ids[other])


def ask(
    scores: Scores,
    question: Question,
    top: int = 10,
    known: Known = "hide",
    any_type: bool = False,
    likely: Likely = (None, None),
    recall: Recall | None = None,
) -> Answers:
    """Rank the answers to queries of one gap, the most plausible first; see ``predict``.

    Who asks often passes a ``recall`` of the graph: then no question reads all triples.
    """
    gap = question.gap
    assert gap is not None
    check_bounds("top", top, 1)
    check_type(flag("known"), Known, known)
    facts = (
        known_answers(question.graph, gap, question.ids)
        if recall is None
        else recall.known(gap, question.ids)
    )
    type_of = None if recall is None else recall.type_of
    queries: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    each = candidates(scores, question, facts, known == "hide", any_type, type_of)
    for row, some in enumerate(each):
        shown = some.best(top)
        found = [
            {
                "rank": rank,
                "name": question.name(gap, answer),
                "label": question.label(gap, answer),
                "score": float(some.scores[answer]),
                "known": facts[row].get(answer, ""),
                **some.mark(answer),
            }
            for rank, answer in enumerate(shown, 1)
        ]
        calibration, prior = likely
        stated = add_chances(calibration, found, some.evidence(shown, facts[row]), gap, prior)
        left_out = len(facts[row]) if known == "hide" else 0
        labels = question.labels(row) | stated
        queries.append({**labels, "known_facts_left_out": left_out, "answers": found})
        rows += question.rows(row, found)
    return Answers(rows, queries)
