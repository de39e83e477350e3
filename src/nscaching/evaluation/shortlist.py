"""The candidates for the gap of a query: which may be answers, which go first, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids, Longs, Side
from nscaching.data.types import RelationType
from nscaching.errors import DIVERGED, UserError
from nscaching.evaluation.ranks import Floats

if TYPE_CHECKING:
    from nscaching.evaluation.answers import Question

Scored = npt.NDArray[np.float32]


class Scores(Protocol):
    """The scores of a model, as arrays."""

    def of_entities(self, side: Side, anchor: Longs, relation: Longs) -> Scored:
        """Score every entity as the answer of queries [n] → [n, |E|]."""

    def of_relations(self, head: Longs, tail: Longs) -> Scored:
        """Score every relation between heads [n] and tails [n] → [n, |R|]."""

    def at_once(self) -> int:
        """Return how many queries to score at once, so that their scores fit into memory."""


class Evidence(NamedTuple):
    """What speaks for the answers [k] to one query, besides what a score says of a triple."""

    score: Floats
    relation: Ids  # of the triple that an answer makes
    log_rank: Floats  # among the answers that are not known
    log_share: Floats  # of the sum of e^score over all candidates that are not known


def candidates(
    scores: Scores,
    question: Question,
    facts: Sequence[Collection[int]],
    hide: bool = True,
    any_type: bool = False,
    type_of: Callable[[int], RelationType] | None = None,
) -> Iterator[Candidates]:
    """Yield the candidates of each query; ``facts`` are its known answers, which ``hide`` hides."""
    if type_of is None:
        type_of = cache(lambda relation: RelationType.of(question.graph.train, relation))
    for row, scored in enumerate(_scored(scores, question)):
        if not np.isfinite(scored).all():
            raise UserError(DIVERGED)
        head, relation, tail = question.ids[:, row].tolist()
        found = Candidates(scored, None if question.gap == 1 else relation)
        if hide:
            found.leave_out(facts[row])
        if question.side is not None:
            anchor, _ = question.side.query(head, tail)
            kind = type_of(relation)
            found.mark_type(kind.entities(question.side))
            if not any_type:
                if kind.is_closed(question.side):
                    found.sort_by_type()
                if not kind.may_loop and anchor not in facts[row]:
                    found.leave_out([anchor])
        yield found


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
    """The candidates for the gap of one query."""

    def __init__(self, scores: Scored, relation: int | None) -> None:
        self.scores = scores
        self.relation = relation  # None: it is the gap
        self.allowed = np.ones(len(scores), dtype=bool)
        self.first = np.ones(len(scores), dtype=bool)
        self.of_relation: npt.NDArray[np.bool_] | None = None

    def leave_out(self, some: Collection[int]) -> None:
        self.allowed[list(some)] = False

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
                some = np.flatnonzero(group & self.allowed)
                found += _highest(self.scores, some, left).tolist()
        return found

    def evidence(self, answers: list[int], known: Collection[int]) -> Evidence:
        """Return what speaks for the best answers [k], as if no known one were a candidate."""
        score = self.scores[answers].astype(np.float64)
        place = np.array(answers, dtype=np.int32)
        relation = place if self.relation is None else np.full_like(place, self.relation)
        unknown = np.array([answer not in known for answer in answers], dtype=bool)
        rank = 1 + np.cumsum(unknown) - unknown
        rivals = self.allowed.copy()
        rivals[list(known)] = False
        others = self.scores[rivals].astype(np.float64)
        top = others.max(initial=score.max(initial=-np.inf))
        with np.errstate(divide="ignore"):  # where no rival is left
            total = top + np.log(np.exp(others - top).sum())
        return Evidence(score, relation, np.log(rank), np.minimum(score - total, 0))


def _highest(scores: Scored, some: Longs, count: int) -> Longs:
    """Return the candidates of the highest scores, equal ones by id: a sort of few of them."""
    mine = scores[some]
    if count < len(mine):
        enough = mine >= np.partition(mine, len(mine) - count)[len(mine) - count]
        some, mine = some[enough], mine[enough]
    return some[np.argsort(-mine, kind="stable")[:count]]
