"""Names → numbers, in the order of first occurrence: by a dict, in large files by compiled code."""

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids, Longs

BULK_AFTER = 3  # pieces of a file; the first is one line
END = "\0"  # ends each name of a piece: no name holds a control character other than tab, line feed

Bytes = npt.NDArray[np.uint8]


class NameTable(dict[str, int]):
    """Names numbered in the order in which they are first asked for."""

    @classmethod
    def of(cls, names: list[str]) -> "NameTable":
        """Return a table of distinct names, numbered in their order."""
        return cls(zip(names, range(len(names)), strict=True))

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def number_triples(pieces: Iterable[bytes], entities: NameTable, relations: NameTable) -> Ids:
    """Return the ids [n, 3] of names (head, relation, tail, head, …), adding them to the tables.

    The first pieces go through Python's dict. After these, ``BulkNames`` is four times as fast,
    which pays for the import of Numba.
    """
    parts = [np.empty((0, 3), np.int32)]
    bulk: list[BulkNames] = []
    for count, names in enumerate(pieces):
        if count == BULK_AFTER:
            bulk = [BulkNames(entities), BulkNames(relations)]
        parts.append(by_bulk(names, *bulk) if bulk else _by_dict(names, entities, relations))
    for each in bulk:
        each.flush()
    return np.concatenate(parts)


def joined(names: Iterable[str]) -> bytes:
    return "".join(name + END for name in names).encode()


def _by_dict(names: bytes, entities: NameTable, relations: NameTable) -> Ids:
    texts = names.decode().split(END)[:-1]
    ids = np.empty((len(texts) // 3, 3), np.int32)
    ids[:, 1] = list(map(relations.__getitem__, texts[1::3]))
    del texts[1::3]
    # Heads and tails in turn, so that they are numbered in the order of the file.
    both = np.fromiter(map(entities.__getitem__, texts), np.int32, len(texts))
    ids[:, ::2] = both.reshape(-1, 2)
    return ids


def by_bulk(names: bytes, entities: "BulkNames", relations: "BulkNames") -> Ids:
    """Return the ids [n, 3] of names (head, relation, tail, head, …), each ended by END."""
    data, *columns = bounds_of(names)
    bounds = np.stack(columns).reshape(2, -1, 3)
    ids = np.empty((bounds.shape[1], 3), np.int32)
    ids[:, 1] = relations.number(data, *bounds[:, :, 1].copy())
    ids[:, ::2] = entities.number(data, *bounds[:, :, ::2].reshape(2, -1)).reshape(-1, 2)
    return ids


def bounds_of(names: bytes) -> tuple[Bytes, Longs, Longs]:
    """Return the bytes, and where each name begins and ends, its END included."""
    data = np.frombuffer(names, np.uint8)
    end = np.flatnonzero(data == ord(END)) + 1
    return data, np.append(0, end)[:-1], end


class BulkNames:
    """A fast twin of a ``NameTable``: the same numbers, for names given as pieces of bytes.

    Name i is ``pool[ends[i]:ends[i + 1]]``; ``slots`` is the hash table of ``name_loops``. The
    hash is seeded at random, so that colliding names cannot be prepared.
    """

    def __init__(self, table: NameTable) -> None:
        self.table, self.count = table, 0
        self.seed = np.uint64(secrets.randbits(64))
        self.slots: Longs = np.full(1 << 12, -1)
        self.ends = np.zeros(1, np.int64)
        self.pool = np.zeros(1, np.uint8)
        self.number(*bounds_of(joined(table)))

    def number(self, data: Bytes, start: Longs, end: Longs) -> Ids:
        from nscaching.data.readers.name_loops import number

        most = self.count + len(start)
        _grow(self.pool, int(self.ends[self.count] + (end - start).sum()))
        _grow(self.ends, most + 1)
        if 2 * most > len(self.slots):
            self.slots = np.empty(0, np.int64)  # the old slots make room for the new ones
            self.slots = np.full(1 << (2 * most).bit_length(), -1)
            # The names of the pool get the numbers and the places that they have.
            bounds = self.ends[: self.count], self.ends[1 : self.count + 1]
            number(self.pool, *bounds, self.seed, self.slots, self.ends, self.pool, 0)
        state = self.seed, self.slots, self.ends, self.pool, self.count
        ids: Ids
        self.count, ids = number(data, start, end, *state)
        return ids

    def needs(self, more: int) -> int:
        """Return the bytes that the table takes with as many more names, their text aside."""
        slots = max(len(self.slots), 1 << (2 * (self.count + more)).bit_length())
        return 8 * slots + self.ends.nbytes + self.pool.nbytes

    def flush(self) -> None:
        first = len(self.table)
        fresh = self.pool[self.ends[first] : self.ends[self.count]].tobytes().decode()
        self.table.update(zip(fresh.split(END), range(first, self.count), strict=False))


def _grow(array: npt.NDArray[Any], size: int) -> None:
    """Make an array longer, in place, if it is shorter than ``size``."""
    if size > len(array):
        array.resize(max(size, 2 * len(array)), refcheck=False)
