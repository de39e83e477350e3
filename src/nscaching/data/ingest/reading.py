"""Tables of names → rows of ids in a file, in chunks whose names fit into memory.

Within a chunk names have numbers of the chunk. When all is read, DuckDB says which names of several
chunks are one, and each chunk gets the ids of the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nscaching.data.index import ROWS, Ids
from nscaching.data.ingest.numbering import Numbering
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.name_table import END, BulkNames, NameTable, by_bulk
from nscaching.data.readers.table import triple_names
from nscaching.errors import UserError
from nscaching.files import writing
from nscaching.units import readable

INT = 4
LEAST = 16 << 20  # bytes that the names of relations may take in any case


@dataclass(frozen=True)
class Chunk:
    """Rows up to ``end``, which are numbered by the names that were given from ``first`` on."""

    end: int
    first: int


@dataclass
class RowFile:
    """The rows (head, relation, tail) of all files, one after another, as int32 on the disk."""

    path: Path
    ends: list[int] = field(default_factory=list)  # row where each file ends
    chunks: list[Chunk] = field(default_factory=list)

    def rows(self, file: int) -> Ids:
        """Map the rows [n, 3] of one of the files."""
        begin, end = ([0, *self.ends])[file : file + 2]
        offset = 3 * INT * begin
        return np.asarray(np.memmap(self.path, np.int32, "r", offset, (end - begin, 3)))


class Reader:
    """Reads files into a row file; relations are numbered at once, entities through DuckDB."""

    def __init__(self, path: Path, numbering: Numbering, memory: int) -> None:
        self.rows = RowFile(path)
        self.numbering, self.memory = numbering, memory  # bytes of the names of a chunk
        self.names = BulkNames(NameTable())
        self.relations = BulkNames(NameTable())
        self.read = 0  # rows

    def read_all(self, files: Iterable[Path], notes: list[str], progress: Progress) -> None:
        with writing(self.rows.path), self.rows.path.open("wb") as out:
            for path in files:
                for piece in triple_names(path, notes, progress):
                    out.write(self._number(piece).data)
                    self._check_relations(path)
                self.rows.ends.append(self.read)
        self._end_chunk()
        self.relations.flush()

    def _number(self, piece: bytes) -> Ids:
        if self.names.count and self.names.needs(piece.count(END.encode())) > self.memory:
            self._end_chunk()
        ids = by_bulk(piece, self.names, self.relations)
        self.read += len(ids)
        return ids

    def _check_relations(self, path: Path) -> None:
        if self.relations.needs(0) > max(self.memory, LEAST):
            count = f"its {self.relations.count:,} relations take more than {readable(self.memory)}"
            raise UserError(f"{path}: {count}; are its columns head, relation, tail in this order?")

    def _end_chunk(self) -> None:
        first = self.numbering.given
        self.numbering.add(self.names.pool, self.names.ends[: self.names.count + 1])
        self.rows.chunks.append(Chunk(self.read, first))
        self.names = BulkNames(NameTable())

    def renumber(self, progress: Progress) -> None:
        """Give the rows the ids of the whole graph, in place."""
        path, begin = self.rows.path, 0
        firsts = [chunk.first for chunk in self.rows.chunks[1:]] + [self.numbering.given]
        with writing(path), path.open("r+b") as file:
            for chunk, last in zip(self.rows.chunks, firsts, strict=True):
                ids = self.numbering.ids(chunk.first, last)
                while begin < chunk.end:
                    count = min(ROWS, chunk.end - begin)
                    file.seek(3 * INT * begin)
                    rows = np.fromfile(file, np.int32, 3 * count).reshape(-1, 3)
                    rows[:, ::2] = ids[rows[:, ::2]]
                    file.seek(3 * INT * begin)
                    file.write(rows.data)
                    begin += count
                    progress("writing ids", begin, self.read)
