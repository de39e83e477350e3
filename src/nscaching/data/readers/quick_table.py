"""The fast twin of the table reader: a block of lines that holds nothing unusual, all at once."""

import itertools
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids, Longs

BULK_AFTER = 3

CONTROLS = bytes(code for code in range(256) if code < 32 or code == 127)
UNUSUAL_TEXT = re.compile(r"[\x80-\x9f]|^\s+$", re.MULTILINE)  # control characters, blank lines

Bytes = npt.NDArray[np.uint8]


class NameTable(dict[str, int]):
    """Names numbered in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class QuickTable:
    """Numbers the names of blocks of lines, and leaves unusual blocks to the plain reader.

    The first blocks go through Python's dict. From block ``BULK_AFTER`` on, ``BulkNames`` is three
    times as fast, which pays for the import of Numba.
    """

    def __init__(self, entities: NameTable, relations: NameTable) -> None:
        self.entities, self.relations = entities, relations
        self._blocks = 0
        self._bulk: list[BulkNames] = []

    def read(self, block: bytes, separator: str) -> Ids | None:
        """Return the ids [n, 3] of a block, or None when anything about it is unusual."""
        lines = quick_lines(block, separator)
        if lines is None:
            self.flush()  # the plain reader continues with the tables
            return None
        self._blocks += 1
        if self._blocks == BULK_AFTER:
            self._bulk = [BulkNames(self.entities), BulkNames(self.relations)]
        ids = np.empty((lines.count(b"\n"), 3), dtype=np.int32)
        if self._bulk:
            data = np.frombuffer(lines, np.uint8)
            end = np.flatnonzero((data == ord(separator)) | (data == ord("\n")))
            bounds = np.stack([np.append(0, end[:-1] + 1), end]).reshape(2, -1, 3)
            entities, relations = self._bulk
            pairs = entities.number(data, *bounds[:, :, ::2].reshape(2, -1))
            middle = relations.number(data, *bounds[:, :, 1].copy())
            if pairs is not None and middle is not None:
                ids[:, 0], ids[:, 1], ids[:, 2] = pairs[0::2], middle, pairs[1::2]
                return ids
            self.flush()
            self._bulk = []
        names = lines[:-1].decode().replace("\n", separator).split(separator)
        ids[:, 1] = list(map(self.relations.__getitem__, names[1::3]))
        del names[1::3]
        # Heads and tails in turn, so that they are numbered in the order of the file.
        both = np.fromiter(map(self.entities.__getitem__, names), np.int32, len(names))
        ids[:, 0], ids[:, 2] = both[0::2], both[1::2]
        return ids

    def flush(self) -> None:
        """Put all names into the tables."""
        for bulk in self._bulk:
            bulk.flush()


class BulkNames:
    """A fast twin of a ``NameTable``: the same numbers, for names given as pieces of bytes.

    Name i is ``pool[ends[i]:ends[i + 1]]``; ``slots`` is the hash table of ``name_loops``.
    """

    def __init__(self, table: NameTable) -> None:
        self.table, self.count = table, 0
        self.slots: Longs = np.full(1 << 12, -1)
        self.ends = np.zeros(1, np.int64)
        self.pool = np.zeros(1, np.uint8)

    def number(self, data: Bytes, start: Longs, end: Longs) -> Ids | None:
        """Return the number of each name data[start:end]; None: names collide, use the dict."""
        if len(self.table) > self.count:  # names that the plain reader numbered
            names = [name.encode() for name in list(self.table)[self.count :]]
            ends = np.cumsum([0, *map(len, names)])
            fresh = np.frombuffer(b"".join(names), np.uint8)
            if self._number(fresh, ends[:-1], ends[1:]) is None:
                return None
        return self._number(data, start, end)

    def flush(self) -> None:
        """Put the new names into the table."""
        first = len(self.table)
        ends = self.ends[first : self.count + 1].tolist()
        text = self.pool[: self.ends[self.count]].tobytes()
        for i, (start, end) in enumerate(itertools.pairwise(ends), first):
            self.table[text[start:end].decode()] = i

    def _number(self, data: Bytes, start: Longs, end: Longs) -> Ids | None:
        from nscaching.data.readers.name_loops import number

        most = self.count + len(start)
        _grow(self.pool, int(self.ends[self.count] + (end - start).sum()))
        _grow(self.ends, most + 1)
        if 2 * most > len(self.slots):
            self.slots = np.full(1 << (2 * most).bit_length(), -1)
            # The names of the pool get the numbers and the places that they have.
            known = self.pool, self.ends[: self.count], self.ends[1 : self.count + 1]
            if not number(*known, np.empty(self.count, np.int32), *self._arrays(), 0)[1]:
                return None
        ids = np.empty(len(start), np.int32)
        self.count, done = number(data, start, end, ids, *self._arrays(), self.count)
        return ids if done else None

    def _arrays(self) -> tuple[Longs, Longs, Bytes]:
        return self.slots, self.ends, self.pool


def _grow(array: npt.NDArray[Any], size: int) -> None:
    """Make an array longer, in place, if it is shorter than ``size``."""
    if size > len(array):
        array.resize(max(size, 2 * len(array)), refcheck=False)


def quick_lines(block: bytes, separator: str) -> bytes | None:
    """Return whole lines of three names each, ended by a line feed, or None if any is unusual.

    Unusual is whatever the plain reader would strip, skip or refuse.
    """
    gap = separator.encode()
    if not block.endswith(b"\n"):
        block += b"\n"
    lines = block.count(b"\n")
    kept = CONTROLS + gap
    shape = block.translate(None, bytes(code for code in range(256) if code not in kept))
    if shape == (gap + gap + b"\r\n") * lines and block.count(b"\r\n") == lines:
        block = block.replace(b"\r\n", b"\n")
    elif shape != (gap + gap + b"\n") * lines:
        return None
    odd = [gap + gap, gap + b"\n", b"\n" + gap]  # an empty name
    if separator != " " and b" " in block:
        odd += [b" " + gap, gap + b" ", b" \n", b"\n "]  # one with spaces around it
    if block[:1] in (gap, b" ") or any(pair in block for pair in odd):
        return None
    if not block.isascii():
        try:
            text = block.decode()
        except UnicodeDecodeError:
            return None
        if text[0] == "\ufeff" or UNUSUAL_TEXT.search(text):
            return None
    return block
