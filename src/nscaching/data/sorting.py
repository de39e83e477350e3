"""Sorting of millions of triples on all cores: NumPy's loops, which threads can share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Given = TypeVar("Given")
Made = TypeVar("Made")

FEW = 1 << 20  # rows for which threads are not worth their start
SAMPLE = 1 << 12  # rows that tell where to cut triples into parts of equal size
BITS = 63  # of a code
MOST_PARTS = 1 << 10


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_cores(work: Callable[[Given], Made], parts: Iterable[Given]) -> list[Made]:
    """Return work(part) of each part, in order, made by as many threads as there are cores."""
    parts = list(parts)
    if len(parts) < 2 or cores() < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(cores(), "sorting") as pool:
        return list(pool.map(work, parts))


def slices(total: int, size: int = FEW) -> list[slice]:
    return [slice(begin, min(begin + size, total)) for begin in range(0, total, size)]


@dataclass(frozen=True)
class Part:
    """The triples whose first id is in a range, as one number for each."""

    first: int
    """The least of the first ids."""
    bits: tuple[int, int]
    """Bits of the second and of the third id in a code."""
    rows: Longs | None
    """The rows of the part, ascending; None: all rows."""
    codes: Longs
    """(first id − first)·2ᵇ⁺ᶜ + second id·2ᶜ + third id of each row."""

    def cut(self, codes: Longs) -> Longs:
        """Take the third ids away from codes, in place."""
        codes >>= self.bits[1]
        return codes

    def first_and_second(self, queries: Longs) -> tuple[Longs, Longs]:
        return (queries >> self.bits[0]) + self.first, queries & ((1 << self.bits[0]) - 1)

    def third(self, codes: Longs) -> Ids:
        third: Ids = (codes & ((1 << self.bits[1]) - 1)).astype(np.int32)
        return third


def for_parts(columns: Sequence[Ids], work: Callable[[Part], Made]) -> list[Made] | None:
    """Return work(part) of all parts of the triples, by ascending first ids.

    The columns are the first, second and third ids [n], none of them negative. None: their range is
    so wide that 63 bits hold no part of a useful size.
    """
    most = [int(column.max(initial=0)) for column in columns]
    bits = most[1].bit_length(), most[2].bit_length()
    room = min(BITS - sum(bits), 31)
    if most[0] >> room >= MOST_PARTS:
        return None
    cuts = np.arange(0, most[0] + 1, 1 << room)
    if len(columns[0]) > FEW and cores() > 2:  # by more cores than a split costs
        sample = np.sort(columns[0][:: len(columns[0]) // SAMPLE])
        cuts = np.union1d(cuts, sample[:: len(sample) // cores()])
    ends = [*cuts[1:].tolist(), most[0] + 1]

    def one(bounds: tuple[int, int]) -> Made:
        begin, end = bounds
        rows = None
        if len(ends) > 1:
            rows = np.flatnonzero((columns[0] >= begin) & (columns[0] < end))
        first, second, third = (c if rows is None else c[rows] for c in columns)
        codes = first.astype(np.int64)
        codes -= begin
        for ids, width in ((second, bits[0]), (third, bits[1])):
            codes <<= width
            codes |= ids
        return work(Part(begin, bits, rows, codes))

    return on_cores(one, zip(cuts.tolist(), ends, strict=True))


def fresh(ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return for each number whether it differs from the number before."""
    found = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


def places(ordered: Longs, wanted: Longs) -> tuple[Longs, npt.NDArray[np.bool_]]:
    """Return where each number is among numbers in ascending order, and whether it is there."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return place, ordered[place] == wanted


def is_in(ordered: Longs, wanted: Longs) -> npt.NDArray[np.bool_]:
    """Say of each number whether it is among some numbers in ascending order."""
    return places(ordered, wanted)[1]


def counted_out(sizes: Longs) -> tuple[Longs, Longs]:
    """Return for each element of groups of some sizes its group, and its place in the group."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def numbered(column: Ids) -> tuple[Ids, Ids]:
    """Return the different ids, ascending, and for each row the number of its id among them."""
    values, place = np.unique(column, return_inverse=True)
    return values, place.astype(np.int32)
