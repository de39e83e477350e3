"""Tables whose names do not fit into memory → the arrays of a graph, kept for the next start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nscaching.data.checks import SPLITS, check_splits
from nscaching.data.index import Ids
from nscaching.data.ingest.numbering import LIBRARY, Numbering, library
from nscaching.data.ingest.reading import Reader
from nscaching.data.ingest.store import Kept, Said, Store, identity, write_graph, write_names
from nscaching.data.mapped_names import MappedNames
from nscaching.data.names import unknown_name
from nscaching.data.negatives import COLUMNS, unknown_in
from nscaching.data.readers.blocks import Progress, stepping
from nscaching.data.readers.table import line_naming
from nscaching.errors import UserError, flag
from nscaching.units import readable

TIMES = 5  # bytes of memory that our own reader takes for a byte of a table
PACKED = 6  # bytes of a table for a byte of a .gz
OF_DUCKDB, OF_CHUNK = 2, 4  # shares of the budget: for DuckDB, and for the names of a chunk
LEAST = 256 << 20  # bytes: with less DuckDB does not work

Splitting = Callable[[Ids, list[str], dict[str, int]], dict[str, Ids]]
"""Splits the triples of a single file; adds to notes and to repeats."""


@dataclass(frozen=True)
class Data:
    """Which files make a graph: of each split, and of the false triples of a split."""

    name: str
    where: Path
    splits: Mapping[str, Path]
    negatives: Mapping[str, Path]
    split_seed: int

    def files(self) -> dict[str, Path]:
        """Return the files in the order in which they are read."""
        return {**self.splits, **{f"{s} negatives": path for s, path in self.negatives.items()}}

    def needs(self) -> int:
        """Return about how many bytes of memory our own reader takes for the files."""
        return TIMES * sum(
            path.stat().st_size * (PACKED if path.suffix.lower() == ".gz" else 1)
            for path in self.files().values()
        )


def reason_to_ingest(data: Data, memory: int) -> str:
    """Return why the files are to be read through DuckDB, or an empty text."""
    if (needs := data.needs()) <= memory:
        return ""
    limit = f"{flag('memory')} allows {readable(memory)}"
    if memory < LEAST:
        raise UserError(f"{limit}, and reading through DuckDB takes at least {readable(LEAST)}")
    if library() is None:
        raise UserError(f"{data.where} takes about {readable(needs)} to read, {limit}; {LIBRARY}")
    return f"reading {data.where} takes about {readable(needs)} of memory, {limit}: through DuckDB"


def ingest(
    data: Data, memory: int, split: Splitting, progress: Progress | None, say: Said, why: str
) -> Kept:
    """Return the arrays of a graph, made now, and said ``why``, or kept from an earlier start."""
    store = Store(data.name, data.where, data.split_seed)
    report = progress or (lambda what, done, of: None)
    with store.locked(say):
        made_from = identity(data.files(), data.split_seed)
        if kept := store.find(made_from, say):
            say(f"{data.where} is unchanged: its arrays are in {store.arrays}")
            return kept
        say(why)
        with store.making(say) as folder:
            work = folder / "work"
            work.mkdir()
            kept = _make(data, memory, split, report, work)
            if identity(data.files(), data.split_seed) != made_from:
                raise UserError(f"{data.where} changed while it was read: read it again")
            write_graph(folder, kept, made_from, report)
            del kept  # which maps files of ``work``
            shutil.rmtree(work)
        kept = store.find(made_from, say)
    assert kept is not None
    return kept


def _make(data: Data, memory: int, split: Splitting, progress: Progress, work: Path) -> Kept:
    notes: list[str] = []
    repeats: dict[str, int] = {}
    numbering = Numbering(work, memory // OF_DUCKDB, progress)
    try:
        reader = Reader(work / "rows.int32", numbering, memory // OF_CHUNK)
        reader.read_all(data.files().values(), notes, progress)
        numbering.finish()
        reader.renumber(progress)
        entities = write_names(work.parent, numbering.texts(), numbering.order())
    finally:
        numbering.close()
    relations = list(reader.relations.table)
    found = [reader.rows.rows(file) for file in range(len(data.files()))]
    splits = dict(zip(data.splits, found, strict=False))
    labelled = dict(zip(data.negatives, found[len(splits) :], strict=True))
    _check_known(data, (entities, relations), splits, labelled)
    if len(splits) == 1:
        splits = split(splits["train"], notes, repeats)
    step = stepping(progress, "checking triples", len(SPLITS) + 1)
    checked = check_splits(entities, relations, splits, step)
    repeats |= checked.repeats
    return Kept(entities, relations, checked.splits, labelled, notes, checked.notes, repeats)


def _check_known(
    data: Data,
    names: tuple[MappedNames, list[str]],
    splits: Mapping[str, Ids],
    labelled: Mapping[str, Ids],
) -> None:
    """Refuse a false triple with a name that no split has; ids are in the order of the files."""
    known = _sizes(splits.values())
    for split, rows in labelled.items():
        path, sizes = data.negatives[split], _sizes([rows])
        new = [max(0, size - before) for size, before in zip(sizes, known, strict=True)]
        for place, (kind, columns) in enumerate(COLUMNS.items()):
            if new[place]:
                name = names[place][known[place]]
                error = unknown_name(kind, name, names[place], known[place])
                raise unknown_in(path, line_naming(path, name, columns), error, sum(new))


def _sizes(parts: Iterable[Ids]) -> tuple[int, int]:
    """Return how many entities and relations the ids of some triples tell."""
    top = [[int(rows[:, column].max()) for column in range(3)] for rows in parts]
    heads, relations, tails = map(max, zip(*top, strict=True))
    return 1 + max(heads, tails), 1 + relations
