"""Which relations hold between the same entities: the pairs that two relations have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from nscaching.data.index import AnswerIndex, Ids, Longs, distinct

Progress = Callable[[str, int, int], None]  # receives (the task, units done, units in all)
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

SAME = 0.8  # share of the pairs of a relation that are "nearly the same pairs"
LEAST = 5  # pairs, heads or triples: with fewer, nothing is said about a relation

MOST_TOGETHER = 1000  # relations between the same two entities; where there are more, none counts
PIECE = 1 << 22  # common pairs in memory at once


@dataclass(frozen=True, eq=False)
class Overlaps:
    """The common pairs of two relations, for every two that have any. Loops do not count.

    Rows are sorted by ``first``. Row i: ``common[i]`` pairs (h, t) of relation ``first[i]`` have
    the triple (h, second[i], t), or, where ``turned[i]``, the triple (t, second[i], h).
    """

    sizes: Longs  # [|R|] pairs of each relation
    first: Longs  # [n]
    second: Longs  # [n]
    turned: Flags  # [n]
    common: Longs  # [n]
    left_out: int  # triples whose two entities have too many relations between them

    def share_of_first(self) -> Floats:
        return self.common / self.sizes[self.first]

    def share_of_second(self) -> Floats:
        return self.common / self.sizes[self.second]

    def where(self, chosen: Flags | slice) -> Overlaps:
        return replace(
            self,
            first=self.first[chosen],
            second=self.second[chosen],
            turned=self.turned[chosen],
            common=self.common[chosen],
        )

    def of(self, relation: int) -> Overlaps:
        """Return the rows whose first relation is this one."""
        begin, end = np.searchsorted(self.first, [relation, relation + 1])
        return self.where(slice(begin, end))

    def equal(self) -> Flags:
        """Say of which rows both relations have nearly the same pairs."""
        least = np.minimum(self.share_of_first(), self.share_of_second())
        return (self.common >= LEAST) & (least >= SAME)

    def contained(self) -> Flags:
        """Say of which rows the second relation has nearly all pairs of the first, and more."""
        first, second = self.share_of_first(), self.share_of_second()
        return (self.common >= LEAST) & (first >= SAME) & (second < SAME)

    def codes(self) -> Longs:
        """Return a number for each row, which ``code`` gives too."""
        return code(self.first, self.second, self.turned, len(self.sizes))


def code(first: Longs, second: Longs, turned: Flags | bool, relations: int) -> Longs:
    return (first.astype(np.int64) * relations + second) * 2 + turned


def pair_index(triples: Ids, entities: int) -> AnswerIndex:
    """Index the relations between every two entities (head, tail)."""
    head, relation, tail = triples.T
    return AnswerIndex.build(head, tail, relation, entities)


def shared_pairs(
    index: AnswerIndex, triples: Ids, progress: Callable[[int, int], None]
) -> Iterator[tuple[bool, Longs, Longs]]:
    """Yield (turned, row of a triple, relation in the index between its entities), in pieces.

    First the relations from its head to its tail, then, turned, those from tail to head.
    """
    head, _, tail = triples.T
    for turned in (False, True):
        start, end = index.runs(tail, head) if turned else index.runs(head, tail)
        end = np.where(end - start > MOST_TOGETHER, start, end)
        for some in pieces(end - start, PIECE):
            row, relation = index.spread(start[some], end[some])
            yield turned, row + some.start, relation.astype(np.int64)
            progress(turned * len(triples) + some.stop, 2 * len(triples))


def pieces(sizes: Longs, most: int) -> Iterator[slice]:
    """Cut rows into consecutive slices of at most ``most`` units, or of one row."""
    ends, begin = np.cumsum(sizes), 0
    while begin < len(ends):
        done = ends[begin - 1] if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, done + most, "right")))
        yield slice(begin, stop)
        begin = stop


def overlaps(triples: Ids, entities: int, relations: int, progress: Progress) -> Overlaps:
    """Count the common pairs of every two relations in some triples [n, 3]."""
    triples = distinct(triples[triples[:, 0] != triples[:, 2]])
    index = pair_index(triples, entities)
    codes, common = np.empty((2, 0), np.int64)
    report = partial(progress, "comparing relations")
    for turned, row, second in shared_pairs(index, triples, report):
        first = triples[row, 1].astype(np.int64)
        other = (first != second) | turned  # every pair of a relation is a pair of it
        new = code(first[other], second[other], turned, relations)
        codes, common = _added(codes, common, *np.unique(new, return_counts=True))
    both, turned_rows = np.divmod(codes, 2)
    sizes = np.bincount(triples[:, 1], minlength=relations)
    start, end = index.runs(triples[:, 0], triples[:, 2])
    left_out = int((end - start > MOST_TOGETHER).sum())
    return Overlaps(sizes, *np.divmod(both, relations), turned_rows == 1, common, left_out)


def _added(codes: Longs, counts: Longs, more: Longs, of_more: Longs) -> tuple[Longs, Longs]:
    """Add counts by code; the codes come out ascending, each once."""
    found, place = np.unique(np.concatenate([codes, more]), return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, place, np.concatenate([counts, of_more]))
    return found, sums
