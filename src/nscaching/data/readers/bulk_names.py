"""The numbers of many names at once: a hash table in arrays, for files of millions of lines."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids, Longs
from nscaching.kernels.cpu.names import EMPTY, fill, number

if TYPE_CHECKING:
    from nscaching.data.readers.quick_table import NameTable

__all__ = ["BulkNames"]

Bytes = npt.NDArray[np.uint8]


class BulkNames:
    """A fast twin of a ``NameTable``: the same numbers, for names given as pieces of bytes.

    Names are kept one after the other in ``pool``; a slot holds the upper half of a name's hash
    and its number.
    """

    def __init__(self, table: NameTable) -> None:
        self.table = table
        self.count = self.used = 0
        self.slots: Longs = np.full(1 << 12, EMPTY)
        self.hashes = np.empty(1 << 11, np.uint64)
        self.ends = np.zeros(1 + (1 << 11), np.int64)  # of name i in the pool: ends[i] to ends[i+1]
        self.pool: Bytes = np.empty(1 << 16, np.uint8)

    def number(self, data: Bytes, start: Longs, end: Longs) -> Ids | None:
        """Return the number of each name data[start:end], or None where the dict has to."""
        if len(self.table) > self.count and not self._catch_up():
            return None
        return self._number(data, start, end)

    def flush(self) -> None:
        """Put the new names into the table."""
        first = len(self.table)
        text, ends = self.pool[: self.used].tobytes(), self.ends[first : self.count + 1].tolist()
        names = [text[start:end].decode() for start, end in itertools.pairwise(ends)]
        self.table.update(zip(names, range(first, self.count), strict=True))

    def _catch_up(self) -> bool:
        """Hear of names that came into the table in another way."""
        names = [name.encode() for name in list(self.table)[self.count :]]
        ends = np.cumsum([len(name) for name in names])
        starts = np.append(0, ends[:-1])
        data = np.frombuffer(b"".join(names), np.uint8)
        return self._number(data, starts, ends) is not None

    def _number(self, data: Bytes, start: Longs, end: Longs) -> Ids | None:
        self._reserve(len(start), int((end - start).sum()))
        ids = np.empty(len(start), np.int32)
        arrays = self.slots, self.hashes, self.ends, self.pool
        self.count, self.used, done = number(data, start, end, ids, *arrays, self.count, self.used)
        return ids if done else None

    def _reserve(self, names: int, size: int) -> None:
        self.pool = _grown(self.pool, self.used + size)
        self.hashes = _grown(self.hashes, self.count + names)
        self.ends = _grown(self.ends, self.count + names + 1)
        if 2 * (self.count + names) > len(self.slots):
            most = 1 << (2 * (self.count + names)).bit_length()
            self.slots = np.full(most, EMPTY)
            fill(self.slots, self.hashes[: self.count])


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array, or a larger one that begins with it."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
