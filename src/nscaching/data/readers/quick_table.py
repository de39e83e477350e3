"""The fast twin of the table reader: a block of lines that holds nothing unusual, all at once."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from nscaching.data.index import Ids

if TYPE_CHECKING:
    from nscaching.data.readers.bulk_names import BulkNames

__all__ = ["NameTable", "QuickTable", "quick_lines"]

BULK_AFTER = 3

CONTROLS = bytes(code for code in range(256) if code < 32 or code == 127)
UNUSUAL_TEXT = re.compile(r"[\x80-\x9f]|^\s+$", re.MULTILINE)  # control characters, blank lines


class NameTable(dict[str, int]):
    """Names numbered in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class QuickTable:
    """Numbers the names of blocks of lines; says so where a block is for the plain reader.

    It begins with Python's dict, and after ``BULK_AFTER`` blocks goes on with ``BulkNames``, which
    is compiled at first use but does not wait for memory as often.
    """

    def __init__(self, entities: NameTable, relations: NameTable) -> None:
        self.entities, self.relations = entities, relations
        self._blocks = 0
        self._bulk: list[BulkNames] = []

    def read(
        self, block: bytes, separator: str, headers: Collection[tuple[str, ...]] = ()
    ) -> Ids | None:
        """Return the ids [n, 3] of a block, or None when anything about it is unusual."""
        lines = quick_lines(block, separator)
        if lines is None:
            self.flush()  # the plain reader goes on with the tables
            return None
        if headers:
            first = lines[: lines.find(b"\n")].decode().lower()
            if tuple(first.split(separator)) in headers:
                return None
        self._blocks += 1
        if self._blocks == BULK_AFTER:
            from nscaching.data.readers.bulk_names import BulkNames

            self._bulk = [BulkNames(self.entities), BulkNames(self.relations)]
        return self._read_bulk(lines, separator) if self._bulk else self._read(lines, separator)

    def flush(self) -> None:
        """Put all names into the tables."""
        for bulk in self._bulk:
            bulk.flush()

    def _read(self, lines: bytes, separator: str) -> Ids:
        names = lines[:-1].decode().replace("\n", separator).split(separator)
        ids = np.empty((len(names) // 3, 3), dtype=np.int32)
        ids[:, 1] = list(map(self.relations.__getitem__, names[1::3]))
        del names[1::3]
        # Heads and tails in turn, so that they are numbered in the order of the file.
        pairs = np.fromiter(map(self.entities.__getitem__, names), np.int32, len(names))
        ids[:, 0], ids[:, 2] = pairs[0::2], pairs[1::2]
        return ids

    def _read_bulk(self, lines: bytes, separator: str) -> Ids:
        data = np.frombuffer(lines, np.uint8)
        end = np.flatnonzero((data == ord(separator)) | (data == ord("\n")))
        bounds = np.stack([np.append(0, end[:-1] + 1), end]).reshape(2, -1, 3)
        entities, relations = self._bulk
        pairs = entities.number(data, *bounds[:, :, ::2].reshape(2, -1))
        middle = relations.number(data, *bounds[:, :, 1].copy())
        if pairs is None or middle is None:
            self.flush()
            self._bulk = []
            return self._read(lines, separator)
        ids = np.empty((len(middle), 3), dtype=np.int32)
        ids[:, 0], ids[:, 1], ids[:, 2] = pairs[0::2], middle, pairs[1::2]
        return ids


def quick_lines(block: bytes, separator: str) -> bytes | None:
    """Return whole lines of three names each, ended by a line feed, or None if any is unusual.

    Unusual is whatever the plain reader would strip, skip or complain of.
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
