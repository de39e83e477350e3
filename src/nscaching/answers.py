"""The known answers of queries, as sorted arrays: keys of the cache, filters, mapping classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["AnswerIndex", "Ids", "Longs"]

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


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
        order = np.lexsort((answer, code))
        code, answer = code[order], answer[order]
        fresh = np.ones(len(code), dtype=bool)
        fresh[1:] = (code[1:] != code[:-1]) | (answer[1:] != answer[:-1])
        code, answer = code[fresh], answer[fresh]
        codes, starts = np.unique(code, return_index=True)
        return cls(relations, codes, np.append(starts, len(code)).astype(np.int64), answer)

    def __len__(self) -> int:
        return len(self.codes)

    def keys(self, anchor: Ids, relation: Ids) -> Longs:
        """Return the key of each query, −1 where it has no known answer."""
        code = anchor.astype(np.int64) * self.relations + relation
        if not len(self.codes):
            return np.full(len(code), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        return np.where(self.codes[place] == code, place, -1)

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

    def pair_codes(self, entities: int) -> Longs:
        """Return key·|E| + answer of every known answer, ascending: membership is one search."""
        key = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return key * entities + self.answers
