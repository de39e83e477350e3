"""The known answers of queries, as sorted arrays: keys of the cache, filters, mapping classes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["AnswerIndex", "Ids", "Longs", "Side", "distinct", "head_probability"]

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


Column = TypeVar("Column")

MOST_CODE = 2**63 - 1


class Side(enum.Enum):
    """Which entity of a triple is asked for: the head of (?, r, t) or the tail of (h, r, ?)."""

    HEAD = "head"
    TAIL = "tail"

    def query(self, head: Column, tail: Column) -> tuple[Column, Column]:
        """Return (anchor, answer): the entity that is given and the one that is asked for."""
        return (tail, head) if self is Side.HEAD else (head, tail)


def _codes(triples: Ids) -> Longs | None:
    """Return a number for each row [n, 3] that orders as the rows do; None where int64 is small."""
    if not len(triples):
        return np.empty(0, dtype=np.int64)
    if int(triples.min()) < 0:
        return None
    _, second, third = (int(most) + 1 for most in triples.max(axis=0))
    if (int(triples[:, 0].max()) + 1) * second * third > MOST_CODE:
        return None
    code = triples[:, 0].astype(np.int64)
    for column, size in ((1, second), (2, third)):
        code *= size
        code += triples[:, column]
    return code


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
        """Index the triples given as three columns."""
        code = anchor.astype(np.int64) * relations + relation
        answers = int(answer.max()) + 1 if len(answer) else 1
        if len(code) and (int(code.max()) + 1) * answers > MOST_CODE:
            code, answer = _sort_pairs(code, answer)
        else:  # query and answer in one number: a sort of numbers is ten times as quick
            code = np.sort(code * answers + answer)
            code, answer = np.divmod(code[_fresh(code)], answers)
            answer = answer.astype(np.int32)
        starts = np.flatnonzero(_fresh(code))
        return cls(relations, code[starts], np.append(starts, len(code)).astype(np.int64), answer)

    def __len__(self) -> int:
        return len(self.codes)

    def keys(self, anchor: Ids, relation: Ids) -> Longs:
        """Return the key of each query, −1 where it has no known answer."""
        code = anchor.astype(np.int64) * self.relations + relation
        if not len(self.codes):
            return np.full(len(code), -1, dtype=np.int64)
        order = np.argsort(code)  # searches go on from where the last one ended
        code = code[order]
        place = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        place[self.codes[place] != code] = -1
        key = np.empty_like(place)
        key[order] = place
        return key

    def runs(self, anchor: Ids, relation: Ids) -> tuple[Longs, Longs]:
        """Return for each query where in ``answers`` its own begin and end."""
        key = self.keys(anchor, relation)
        start = self.offsets[key]  # of key −1: the end, where nothing is
        return start, np.where(key >= 0, self.offsets[key + 1], start)

    def known(self, anchor: Ids, relation: Ids) -> tuple[Longs, Ids]:
        """Return (row, entity) for every known answer of every query, rows ascending."""
        start, end = self.runs(anchor, relation)
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
        """Return key·|E| + answer of every known answer, ascending: membership is one search."""
        key = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return key * entities + self.answers


def head_probability(index: Mapping[Side, AnswerIndex]) -> npt.NDArray[np.float64]:
    """Return Bernoulli sampling's chance [|R|] to replace the head: tph / (tph + hpt)."""
    tph, hpt = index[Side.TAIL].mean_answers(), index[Side.HEAD].mean_answers()
    total = tph + hpt
    return np.divide(tph, total, out=np.full_like(tph, 0.5), where=total > 0)


def _fresh(ordered: Longs) -> npt.NDArray[np.bool_]:
    """Tell of each number whether it differs from the one before it."""
    fresh = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return fresh


def _sort_pairs(code: Longs, answer: Ids) -> tuple[Longs, Ids]:
    """Sort (query, answer) pairs and drop repeats: the plain twin, for numbers of any size."""
    order = np.lexsort((answer, code))
    code, answer = code[order], answer[order]
    fresh = _fresh(code)
    fresh[1:] |= answer[1:] != answer[:-1]
    return code[fresh], answer[fresh]


def distinct(triples: Ids) -> Ids:
    """Drop repeated rows, keeping the order of first occurrence."""
    codes = _codes(triples)
    if codes is None:
        return _distinct_rows(triples)
    ordered = np.sort(codes)
    if not (ordered[1:] == ordered[:-1]).any():  # as is usual: a sort alone is quick
        return triples
    first = np.unique(codes, return_index=True)[1]
    return triples[np.sort(first)]


def _distinct_rows(triples: Ids) -> Ids:
    """Do as ``distinct`` without codes: the plain twin, for ids of any size."""
    order = np.lexsort(triples.T)  # stable: of equal rows, the earliest comes first
    ordered = triples[order]
    fresh = np.ones(len(triples), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return triples[np.sort(order[fresh])]
