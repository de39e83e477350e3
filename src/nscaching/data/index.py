"""The known answers of queries, as sorted arrays: for cache keys, filters and mapping classes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nscaching.data.sorting import (
    Part,
    counted_out,
    for_parts,
    fresh,
    is_in,
    numbered,
    on_cores,
    places,
    slices,
)

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Column = TypeVar("Column")

ROWS = 1 << 20  # of a piece of a long array: what is computed of it takes little memory


class Side(enum.Enum):
    """Which entity of a triple is asked for: the head of (?, r, t) or the tail of (h, r, ?)."""

    HEAD = "head"
    TAIL = "tail"

    @property
    def other(self) -> Side:
        return Side.TAIL if self is Side.HEAD else Side.HEAD

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
        def part_of(part: Part) -> tuple[Longs, Longs, Ids]:
            """Return codes, where the answers of each begin, and the answers of one part."""
            code = part.codes
            code.sort()
            if not (once := fresh(code)).all():
                code = code[once]
            answers = part.third(code)
            query = part.cut(code)
            starts = np.flatnonzero(fresh(query))
            anchors, own = part.first_and_second(query[starts])
            anchors *= relations
            anchors += own
            return anchors, starts, answers

        parts = for_parts((anchor, relation, answer), part_of)
        if parts is None:  # ids so large that only their numbers fit
            names, (anchor, relation, answer) = zip(
                *map(numbered, (anchor, relation, answer)), strict=True
            )
            index = cls.build(anchor, relation, answer, len(names[1]))
            anchors, own = np.divmod(index.codes, len(names[1]))
            codes = names[0][anchors].astype(np.int64) * relations + names[1][own]
            return cls(relations, codes, index.offsets, names[2][index.answers])
        sizes = np.cumsum([0, *(len(answers) for _, _, answers in parts)])
        offsets = [starts + begin for (_, starts, _), begin in zip(parts, sizes, strict=False)]
        return cls(
            relations,
            np.concatenate([codes for codes, _, _ in parts]),
            np.concatenate([*offsets, sizes[-1:]]),
            np.concatenate([answers for _, _, answers in parts]),
        )

    def __len__(self) -> int:
        return len(self.codes)

    def keys(self, anchor: Ids, relation: Ids) -> Ids:
        """Return the key of each query, −1 where it has no known answer."""
        key = np.empty(len(anchor), dtype=np.int32)

        def find(some: slice) -> None:
            code = anchor[some].astype(np.int64) * self.relations + relation[some]
            order = np.argsort(code)  # searches in ascending order use the CPU's cache
            place, there = places(self.codes, code[order])
            key[some][order] = np.where(there, place, -1)

        on_cores(find, slices(len(anchor)))
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
        row, place = counted_out(end - start)
        return row, self.answers[start[row] + place]

    def mean_answers(self) -> npt.NDArray[np.float64]:
        """Return for each relation [|R|] the mean number of answers of its queries."""

        def count(some: slice) -> tuple[Longs, npt.NDArray[np.float64]]:
            relation: Longs = self.codes[some] % self.relations
            sizes = self.offsets[some.start + 1 : some.stop + 1] - self.offsets[some]
            queries: Longs = np.bincount(relation, minlength=self.relations)
            answers = np.bincount(relation, sizes, minlength=self.relations)
            return queries, answers.astype(np.float64, copy=False)

        queries, answers = np.zeros(self.relations, np.int64), np.zeros(self.relations)
        for some_queries, some_answers in on_cores(count, slices(len(self))):
            queries += some_queries
            answers += some_answers
        mean: npt.NDArray[np.float64] = answers / np.maximum(queries, 1)
        return mean

    def holds(
        self, anchor: Ids, relation: Ids, answer: Ids, entities: int
    ) -> npt.NDArray[np.bool_]:
        """Say of each query and answer [n] whether the answer is known."""
        key = self.keys(anchor, relation).astype(np.int64)  # key·|E| may need more than 32 bits
        return (key >= 0) & is_in(self.pair_codes(entities), key * entities + answer)

    def pair_codes(self, entities: int) -> Longs:
        """Return key·|E| + answer of every known answer, ascending, for binary search."""
        key = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return key * np.int64(entities) + self.answers


def answer_index(triples: Ids, relations: int) -> dict[Side, AnswerIndex]:
    """Index the triples [n, 3] for the queries of both sides."""
    head, relation, tail = np.ascontiguousarray(triples.T)
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


def distinct(triples: Ids) -> Ids:
    """Drop repeated rows, keeping the order of first occurrence."""

    def repeated(part: Part) -> Longs | None:
        """Return the rows of one part that repeat an earlier row; None: there are none."""
        if fresh(np.sort(part.codes)).all():  # as is usual: a sort alone is fast
            return None
        again = np.ones(len(part.codes), dtype=bool)
        again[np.unique(part.codes, return_index=True)[1]] = False
        return np.flatnonzero(again) if part.rows is None else part.rows[again]

    columns = tuple(triples.T)
    parts = for_parts(columns, repeated)
    if parts is None:
        parts = for_parts([numbered(column)[1] for column in columns], repeated)
    assert parts is not None  # the numbers of rows in memory fit
    found = [rows for rows in parts if rows is not None]
    return np.delete(triples, np.concatenate(found), axis=0) if found else triples
