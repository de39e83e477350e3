"""The OpenKE format: a count line, then integers, with columns (head, tail, relation)."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nscaching.data.graph import Labelled
from nscaching.data.index import Ids, Longs
from nscaching.data.readers.blocks import (
    Blocks,
    Progress,
    filled_lines,
    read_blocks,
    shown,
    split_first,
)
from nscaching.errors import UserError


def read_openke_names(path: Path) -> list[str]:
    """Read ``name id`` lines after a count; the ids must be 0 … count−1, each once."""
    first, count, blocks = _counted(path, "names")
    names: dict[int, str] = {}
    seen: set[str] = set()
    extra = 0
    for number, line in filled_lines(path, blocks):
        if len(names) == count:
            extra += 1
            continue
        name, _, identifier = line.strip().replace("\t", " ").rpartition(" ")
        name, place = name.strip(), _natural(identifier)
        if not name or place is None:
            raise UserError(f"{path}:{number}: expected a name and an id: {shown(line)}")
        if place >= count:
            raise UserError(f"{path}:{number}: id {place} is out of range 0…{count - 1}")
        if place in names or name in seen:
            twice = f"id {place}" if place in names else f"name {name!r}"
            raise UserError(f"{path}:{number}: {twice} is given twice")
        names[place] = name
        seen.add(name)
    _check_count(path, first, "names", count, len(names) + extra)
    return [names[place] for place in range(count)]


def read_openke_ids(
    path: Path, entities: int, relations: int, progress: Progress | None = None
) -> Ids:
    """Read ``head tail relation`` ids after a count into columns (head, relation, tail)."""
    first, count, blocks = _counted(path, "triples", progress)
    parts = [np.empty((0, 3), np.int32)]
    for lines, rows in _integers(path, 3, blocks):
        parts.append(_triples(path, lines, rows, entities, relations))
    found = np.concatenate(parts)
    _check_count(path, first, "triples", count, len(found))
    return found


def read_openke_labelled(path: Path, entities: int, relations: int) -> Labelled:
    """Read ``head tail relation ±1`` lines (no count) for triplet classification."""
    triples, truth = [], []
    for lines, rows in _integers(path, 4, read_blocks(path)):
        label = rows[:, 3]
        for row in np.flatnonzero(np.abs(label) != 1)[:1]:
            _triples(path, lines, rows[: row + 1, :3], entities, relations)  # the first flaw first
            raise UserError(f"{path}:{lines[row]}: the label must be 1 or -1, not {label[row]}")
        triples.append(_triples(path, lines, rows[:, :3], entities, relations))
        truth.append(label == 1)
    if not any(map(len, triples)):
        raise UserError(f"{path}: the file is empty")
    return Labelled(np.concatenate(triples), np.concatenate(truth), path.name)


def _natural(text: str) -> int | None:
    """Return a number 0, 1, 2, … of a sensible length, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _counted(path: Path, what: str, progress: Progress | None = None) -> tuple[int, int, Blocks]:
    """Return the number of the count line, the count and the blocks after this line."""
    number, line, blocks = split_first(path, read_blocks(path, progress))
    count = _natural(line.strip())
    if count is None:
        raise UserError(f"{path}:{number}: expected the number of {what}, found {shown(line)}")
    return number, count, blocks


def _check_count(path: Path, number: int, what: str, count: int, found: int) -> None:
    if found != count:
        raise UserError(f"{path}:{number}: says {count:,} {what}, but {found:,} follow")


def _integers(path: Path, columns: int, blocks: Blocks) -> Iterator[tuple[Longs, Longs]]:
    """Yield for each block the line numbers [n] and the integers [n, columns] of its rows."""
    for number, block in blocks:
        ids = quick_rows(block, columns)
        if ids is not None:
            yield np.arange(number, number + len(ids)), ids
            continue
        lines, fields, flaw = [], [], None
        try:
            for place, line in filled_lines(path, [(number, block)]):
                fields.append(_fields(f"{path}:{place}", line, columns))
                lines.append(place)
        except UserError as error:
            flaw = error  # told after the flaws of the rows before it
        yield np.array(lines), np.array(fields, np.int64).reshape(-1, columns)
        if flaw is not None:
            raise flaw


def _fields(where: str, line: str, columns: int) -> list[int]:
    fields = line.split()
    if len(fields) != columns:
        raise UserError(f"{where}: expected {columns} integers, found {len(fields)}: {shown(line)}")
    if not all(re.fullmatch(r"-?[0-9]{1,18}", field) for field in fields):
        raise UserError(f"{where}: not all integers: {shown(line)}")
    return [int(field) for field in fields]


def quick_rows(block: bytes, columns: int) -> Longs | None:
    """Return the integers [n, columns] of lines that hold nothing else, ten times as fast."""
    row = rb"-?[0-9]{1,18}(?:[ \t]-?[0-9]{1,18}){%d}(?:\r?\n|\Z)" % (columns - 1)
    if not re.fullmatch(rb"(?:%b)++" % row, block):
        return None
    return np.fromstring(block, np.int64, sep=" ").reshape(-1, columns)


def _triples(path: Path, lines: Longs, ids: Longs, entities: int, relations: int) -> Ids:
    """Check columns (head, tail, relation) against the number of names; return the triples."""
    bounds = np.array([entities, entities, relations])
    for row, column in np.argwhere((ids < 0) | (ids >= bounds))[:1]:
        what = f"{('head', 'tail', 'relation')[column]} id {ids[row, column]}"
        raise UserError(f"{path}:{lines[row]}: {what} is out of range 0…{bounds[column] - 1}")
    return ids[:, [0, 2, 1]].astype(np.int32)
