"""Fewer rows than queries: which row of a cache serves which query, by arithmetic.

The most visited queries have rows of their own. The others of a relation share rows, in order of
their anchor and about equally many to a row. A row is found by a binary search among the first
queries of all rows: eight bytes of each row, and nothing of each query.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Longs, Side
from nscaching.data.sorting import counted_out, on_cores, slices
from nscaching.errors import UserError, counted, flag
from nscaching.units import read_budget

OWN = 0.5
"""Part of the rows beyond one for each relation that the most visited queries have alone."""

ID = 4  # bytes of a cached entity

Mask = npt.NDArray[np.bool_]
"""For the keys of a side, whether they have a row of their own."""


def rows_within(budget: str, keys: int, n1: int, named: str = "memory") -> int:
    """Return how many rows of N1 entities a budget allows, at most one for each key.

    A share is one of the memory of a row for each key.
    """
    size = read_budget(budget, named)
    rows = keys * size if isinstance(size, float) else size // (ID * n1)
    return min(keys, int(rows))


@dataclass(frozen=True)
class SharedRows:
    """Which of the rows of one side a query has, where there are fewer rows than queries."""

    entities: int
    relations: int
    own: Tensor
    """anchor·|R| + relation [n] of the queries of the rows 0 … n − 1, which share with none."""
    first: Tensor
    """relation·|E| + anchor of the first query of each other row; both arrays are ascending."""

    def __len__(self) -> int:
        return len(self.own) + len(self.first)

    def find(self, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the rows [B] of queries of training."""
        row = torch.searchsorted(self.first, relation * self.entities + anchor, right=True)
        row += len(self.own) - 1
        if not len(self.own):
            return row
        code = anchor * self.relations + relation
        place = torch.searchsorted(self.own, code).clamp_(max=len(self.own) - 1)
        return torch.where(self.own[place] == code, place, row)

    @property
    def nbytes(self) -> int:
        return self.own.nbytes + self.first.nbytes


def rows_of_budget(
    budget: str, index: Mapping[Side, AnswerIndex], n1: int, entities: int, device: torch.device
) -> dict[Side, SharedRows]:
    """Return the rows of all queries within a budget; an empty dictionary: each has its own."""
    keys = sum(map(len, index.values()))
    rows = rows_within(budget, keys, n1)
    if rows == keys:
        return {}
    check_rows(budget, rows, index, n1)
    return share_rows(index, entities, rows, device)


def check_rows(
    budget: str, rows: int, index: Mapping[Side, AnswerIndex], n1: int, named: str = "memory"
) -> None:
    """Refuse a budget that does not hold a row for each relation and side."""
    if rows < (least := least_rows(index)):
        holds = f"{flag(named)} {budget} holds {counted(rows, 'row')} of {n1} entities"
        needs = f"each relation needs a row on each side, {least:,} in all"
        raise UserError(f"{holds}; {needs}: give {least * ID * n1}B or more")


def share_rows(
    index: Mapping[Side, AnswerIndex],
    entities: int,
    rows: int,
    device: torch.device,
    share: float = OWN,
) -> dict[Side, SharedRows]:
    """Spread rows over the queries of both sides, which are more."""
    sizes = _sizes(index)
    own = _most_visited(index, round(share * (rows - np.count_nonzero(sizes))))
    counts = _rows_of_relations(_sizes(index, own), rows - sum(map(np.count_nonzero, own)))

    def of_side(given: tuple[AnswerIndex, Mask, Longs]) -> SharedRows:
        answers, alone, mine = given
        first = _first_queries(answers.codes[~alone], entities, mine)
        codes = (torch.from_numpy(codes).to(device) for codes in (answers.codes[alone], first))
        return SharedRows(entities, answers.relations, *codes)

    parts = zip(index.values(), own, np.split(counts, 2), strict=True)
    return dict(zip(index, on_cores(of_side, parts), strict=True))


def least_rows(index: Mapping[Side, AnswerIndex]) -> int:
    """Return how many rows are needed at least: one for each relation on each side."""
    return int(np.count_nonzero(_sizes(index)))


def _sizes(index: Mapping[Side, AnswerIndex], own: Sequence[Mask] | None = None) -> Longs:
    """Count the queries of each relation and side [2·|R|] that have no row of their own."""
    relations = index[Side.HEAD].relations
    counts = []
    for answers, alone in zip(index.values(), own or (None, None), strict=True):

        def count(some: slice, codes: Longs = answers.codes, alone: Mask | None = alone) -> Longs:
            left = codes[some] if alone is None else codes[some][~alone[some]]
            return np.bincount(left % relations, minlength=relations)

        parts = on_cores(count, slices(len(answers)))
        counts.append(np.sum([np.zeros(relations, np.int64), *parts], axis=0))
    return np.concatenate(counts)


def _rows_of_relations(sizes: Longs, rows: int) -> Longs:
    """Spread rows over the queries of each relation and side, at most g queries to a row.

    g is the least for which the rows suffice; some relations have more rows than they need for it.
    """

    def needed(group: int) -> Longs:
        found: Longs = -(-sizes // group)
        return found

    every = range(1, int(sizes.max(initial=1)) + 1)
    group = 1 + bisect_left(every, True, key=lambda group: needed(group).sum() <= rows)
    counts = needed(group)
    if group == 1:
        return counts
    room = needed(group - 1) - counts
    left = rows - int(counts.sum())
    more = room * left // max(1, int(room.sum()))
    left -= int(more.sum())
    room -= more
    last = np.clip(left - (np.cumsum(room) - room), 0, room)  # one after another
    spread: Longs = counts + more + last
    return spread


def _most_visited(index: Mapping[Side, AnswerIndex], count: int) -> list[Mask]:
    """Mark on each side the queries with the most answers, of equal ones the first."""
    own = [np.zeros(len(each), bool) for each in index.values()]
    if count <= 0:
        return own
    # Slices of all keys, one side after the other: what is made of a slice takes little memory.
    parts = [
        (offsets, mine, some)
        for offsets, mine in zip((each.offsets for each in index.values()), own, strict=True)
        for some in slices(len(mine))
    ]

    def visits(offsets: Longs, some: slice) -> Longs:
        return np.diff(offsets[some.start : some.stop + 1])

    found = on_cores(lambda part: np.unique(visits(part[0], part[2]), return_counts=True), parts)
    values, place = np.unique(np.concatenate([v for v, _ in found]), return_inverse=True)
    queries = np.bincount(place, np.concatenate([n for _, n in found])).astype(np.int64)
    above = queries[::-1].cumsum()[::-1] - queries  # with more visits than each value
    least = values[above < count][0]
    level = [int(n[v == least].sum()) for v, n in found]
    before = count - int(above[values == least][0]) - np.cumsum([0, *level[:-1]])

    def mark(each: tuple[tuple[Longs, Mask, slice], int]) -> None:
        (offsets, mine, some), room = each
        visited = visits(offsets, some)
        mine[some] = visited > least
        mine[some.start + np.flatnonzero(visited == least)[: max(0, room)]] = True

    on_cores(mark, zip(parts, before.tolist(), strict=True))
    return own


def _first_queries(codes: Longs, entities: int, rows: Longs) -> Longs:
    """Return relation·|E| + anchor of the first query of each row of each relation [|R|]."""
    anchor, relation = np.divmod(codes, len(rows))
    sizes = np.bincount(relation, minlength=len(rows))
    relation *= entities
    relation += anchor
    relation.sort()
    of, place = counted_out(rows)
    begin = np.cumsum(sizes) - sizes
    first: Longs = relation[begin[of] + place * sizes[of] // rows[of]]
    return first
