"""Names → numbers through DuckDB, which has a limit of memory and spills to the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.data.index import Ids, Longs
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.name_table import END, Bytes
from nscaching.errors import UserError, flag
from nscaching.files import CannotWriteError
from nscaching.units import readable

if TYPE_CHECKING:
    import duckdb

LIBRARY = 'is done by duckdb, which is not installed: pip install "nscaching[large]"'
PIECE = 4 << 20  # bytes of names that DuckDB is given at a time
SLICE = 1 << 20  # rows that are taken from DuckDB at a time
OF_A_THREAD = 128 << 20  # bytes: with less for each of them, threads run out of memory
POLL = 0.2  # seconds between two looks at the progress of a query
MOST = 2**31 - 1
FAULTS = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO

# What each query makes of the tables before, one large operation each. A table that was made in an
# order has its rows in that order, numbered by ``rowid``.
STEPS = {
    "finding equal names": "CREATE TABLE firsts AS"
    " SELECT name, min(place) AS place FROM given GROUP BY name",
    "numbering names": "CREATE TABLE names AS SELECT name FROM firsts ORDER BY place",
    "looking up names": "CREATE TABLE found AS SELECT given.place, names.rowid AS id"
    " FROM given JOIN names USING (name)",
    "ordering ids": "CREATE TABLE numbers AS SELECT id FROM found ORDER BY place",
    "sorting names": "CREATE TABLE sorted AS SELECT rowid AS id FROM names ORDER BY name",
}
DROPPED = {"numbering names": "firsts", "looking up names": "given", "ordering ids": "found"}
INSERT = (
    "INSERT INTO given SELECT ? + generate_subscripts(found, 1) - 1, unnest(found)"
    " FROM (SELECT string_split(?, chr(0)) AS found)"
)


def library() -> Any:  # noqa: ANN401
    """Return the library, or None."""
    try:
        import duckdb
    except ImportError:
        return None
    return duckdb


class Numbering:
    """Names given in any number, with repeats → their numbers in the order of first occurrence."""

    def __init__(self, folder: Path, memory: int, progress: Progress) -> None:
        self.folder, self.memory, self.progress = folder, memory, progress
        self.given = 0  # names so far, with repeats
        threads = max(1, min(os.cpu_count() or 1, memory // OF_A_THREAD))
        settings = {
            "memory_limit": f"{memory >> 20}MiB",
            "temp_directory": str(folder / "spilled"),
            "max_temp_directory_size": f"{shutil.disk_usage(folder).total >> 20}MiB",
            "threads": threads,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with self._told():
            self.base: duckdb.DuckDBPyConnection = library().connect(
                folder / "names.duckdb", config=settings
            )
            self.base.execute(
                "SET enable_progress_bar = true; SET enable_progress_bar_print = false"
            )
            self.base.execute("CREATE TABLE given (place BIGINT, name VARCHAR)")

    def add(self, text: Bytes, ends: Longs) -> None:
        """Take names, each ended by END: name i is text[ends[i]:ends[i + 1]]."""
        begin, count = 0, len(ends) - 1
        while begin < count:
            end = int(np.searchsorted(ends, ends[begin] + PIECE, side="right")) - 1
            end = min(max(end, begin + 1), count)
            names = text[ends[begin] : ends[end] - len(END)].tobytes().decode()
            with self._told():
                self.base.execute(INSERT, [self.given, names])
            self.given += end - begin
            begin = end

    def finish(self) -> None:
        """Number the names; from now on ``ids``, ``names`` and ``order`` know them."""
        for what, query in STEPS.items():
            with self._told():
                kept = "true" if "ORDER BY" in query else "false"  # which takes memory
                self.base.execute(f"SET preserve_insertion_order = {kept}")
                self._watched(what, query)
                if table := DROPPED.get(what):
                    self.base.execute(f"DROP TABLE {table}")
        ((self.count,),) = self.base.execute("SELECT count(*) FROM names").fetchall()
        if self.count > MOST:
            raise UserError(f"there are {self.count:,} names, and ids reach {MOST:,}")

    def ids(self, begin: int, end: int) -> Ids:
        """Return the numbers of some of the names, in the order in which they were given."""
        parts = [part["id"] for part in self._rows("numbers", "id", begin, end)]
        return np.concatenate([np.empty(0, np.int32), *parts], dtype=np.int32)

    def order(self) -> Iterator[Ids]:
        """Yield the numbers of the names in the order of their bytes, in pieces."""
        for part in self._rows("sorted", "id", 0, self.count):
            yield part["id"].astype(np.int32)

    def texts(self) -> Iterator[bytes]:
        """Yield the names by number in pieces, each name ended by END."""
        done = 0
        for part in self._rows("names", "name", 0, self.count):
            self.progress("writing names", done, self.count)
            done += len(part["name"])
            yield (END.join(part["name"]) + END).encode()

    def close(self) -> None:
        self.base.close()

    def _rows(self, table: str, column: str, begin: int, end: int) -> Iterator[dict[str, Any]]:
        query = f"SELECT {column} FROM {table} WHERE rowid >= ? AND rowid < ?"  # noqa: S608
        for first in range(begin, end, SLICE):
            last = min(first + SLICE, end)
            with self._told():
                found = self.base.execute(query, [first, last]).fetchnumpy()
            assert len(found[column]) == last - first
            yield found

    def _watched(self, what: str, query: str) -> None:
        """Run a query, and report how far it is."""
        self.progress(what, 0, 1000)
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(self.base.execute, query)
            try:
                while not work.done():
                    wait([work], POLL)
                    done = self.base.query_progress()
                    if 0 <= done <= 100:
                        self.progress(what, round(10 * done), 1000)
            finally:
                while not work.done():  # such as by Ctrl-C
                    self.base.interrupt()
                    wait([work], POLL)
        work.result()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an error of DuckDB into one line."""
        duckdb = library()
        try:
            yield
        except (duckdb.Error, OSError) as error:
            full = _fault_of_disk(str(error))
            if isinstance(error, duckdb.OutOfMemoryException) and not full:
                share = f"DuckDB has half of {flag('memory')}, {readable(self.memory)}"
                what = f"too little to number {self.given:,} names: give more"
                raise UserError(f"{share}, {what}") from error
            raise CannotWriteError(f"cannot write {self.folder}: {full or error}") from error


def _fault_of_disk(text: str) -> str:
    """Return the system's words for a disk that takes no more, or an empty text."""
    if "max_temp_directory_size" in text:  # by which DuckDB says that it cannot spill
        return os.strerror(errno.ENOSPC)
    return next((words for words in map(os.strerror, FAULTS) if words in text), "")
