"""The known answers of queries, as sorted arrays: for cache keys, filters and mapping classes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Column = TypeVar("Column")

MOST_CODE = 2**63 - 1


class Side(enum.Enum):
    """Which entity of a triple is asked for: the head of (?, r, t) or the tail of (h, r, ?)."""

    HEAD = "head"
    TAIL = "tail"

    def query(self, head: Column, tail: Column) -> tuple[Column, Column]:
        """Return (anchor, answer): the given entity, then the entity asked for."""
        return (tail, head) if self is Side.HEAD else (head, tail)


@dataclass(frozen=True)
class AnswerIndex:
    """The known answers of every query (anchor, relation), as sorted arrays.

    Keys number the distinct queries. ``codes`` [K] is anchor·|R| + relation, ascending; the answers
    of key k are ``answers[offsets[k]:offsets[k+1]]``, ascending and without repeats.
    """

    relations: int
    codes: Longs
    offsets: Longs
    answers: Ids

    @classmethod
    def build(cls, anchor: Ids, relation: Ids, answer: Ids, relations: int) -> AnswerIndex:
        code = anchor.astype(np.int64) * relations + relation
        size = int(answer.max(initial=0)) + 1
        numbered = _join(code, answer, size)
        code.sort()
        code, answers = np.divmod(code[_fresh(code)], size)
        starts = np.flatnonzero(_fresh(code))
        offsets = np.append(starts, len(code)).astype(np.int64)
        codes = code[starts] if numbered is None else numbered
        return cls(relations, codes, offsets, answers.astype(np.int32))

    def __len__(self) -> int:
        return len(self.codes)

    def keys(self, anchor: Ids, relation: Ids) -> Longs:
        """Return the key of each query, −1 where it has no known answer."""
        code = anchor.astype(np.int64) * self.relations + relation
        if not len(self.codes):
            return np.full(len(code), -1, dtype=np.int64)
        order = np.argsort(code)  # searches in ascending order use the CPU's cache
        code = code[order]
        place = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        place[self.codes[place] != code] = -1
        key = np.empty_like(place)
        key[order] = place
        return key

    def runs(self, anchor: Ids, relation: Ids) -> tuple[Longs, Longs]:
        """Return for each query the places in ``answers`` where its answers begin and end."""
        key = self.keys(anchor, relation)
        start = self.offsets[key]  # of key −1: the last offset, an empty run
        return start, np.where(key >= 0, self.offsets[key + 1], start)

    def known(self, anchor: Ids, relation: Ids) -> tuple[Longs, Ids]:
        """Return (row, entity) for every known answer of every query, rows ascending."""
        return self.spread(*self.runs(anchor, relation))

    def spread(self, start: Longs, end: Longs) -> tuple[Longs, Ids]:
        """Return (row, entity) for every place of some runs of ``answers``, rows ascending."""
        size = end - start
        row = np.repeat(np.arange(len(size)), size)
        # Position inside the row's own run of answers: a running count minus where the row began.
        within = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
        return row, self.answers[start[row] + within]

    def mean_answers(self) -> npt.NDArray[np.float64]:
        """Return for each relation [|R|] the mean number of answers of its queries."""
        relation = self.codes % self.relations
        answers = np.bincount(relation, np.diff(self.offsets), minlength=self.relations)
        return answers / np.maximum(np.bincount(relation, minlength=self.relations), 1)

    def pair_codes(self, entities: int) -> Longs:
        """Return key·|E| + answer of every known answer, ascending, for binary search."""
        key = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return key * entities + self.answers


def answer_index(triples: Ids, relations: int) -> dict[Side, AnswerIndex]:
    """Index the triples [n, 3] for the queries of both sides."""
    head, relation, tail = triples.T
    return {
        side: AnswerIndex.build(anchor, relation, answer, relations)
        for side in Side
        for anchor, answer in [side.query(head, tail)]
    }


def head_probability(index: Mapping[Side, AnswerIndex]) -> npt.NDArray[np.float64]:
    """Return Bernoulli sampling's chance [|R|] to replace the head: tph / (tph + hpt)."""
    tph, hpt = index[Side.TAIL].mean_answers(), index[Side.HEAD].mean_answers()
    total = tph + hpt
    return np.divide(tph, total, out=np.full_like(tph, 0.5), where=total > 0)


def _fresh(ordered: Longs) -> npt.NDArray[np.bool_]:
    """Return for each number whether it differs from the number before."""
    fresh = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return fresh


def _join(code: Longs, answer: Ids, size: int) -> Longs | None:
    """Make each code code·size + answer, in place: NumPy sorts these ten times as fast as pairs.

    Codes and answers are not negative, and answers are below ``size``. Where int64 is too small,
    the codes are numbered first, in ascending order; returns the distinct codes then.
    """
    distinct_codes = None
    if (int(code.max(initial=0)) + 1) * size > MOST_CODE:
        distinct_codes, code[:] = np.unique(code, return_inverse=True)
    code *= size
    code += answer
    return distinct_codes


def distinct(triples: Ids) -> Ids:
    """Drop repeated rows, keeping the order of first occurrence."""
    head, relation, tail = triples.T
    code = head.astype(np.int64) * (int(relation.max(initial=0)) + 1) + relation
    _join(code, tail, int(tail.max(initial=0)) + 1)
    if _fresh(np.sort(code)).all():  # as is usual: a sort alone is fast
        return triples
    first = np.unique(code, return_index=True)[1]
    return triples[np.sort(first)]
