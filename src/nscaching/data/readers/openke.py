"""The OpenKE format: a count line, then integers, with columns (head, tail, relation)."""

import re
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
    found = 0
    for found, (number, line) in enumerate(filled_lines(path, blocks), 1):
        if found > count:
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
    _check_count(path, first, "names", count, found)
    return [names[place] for place in range(count)]


def read_openke_ids(
    path: Path, entities: int, relations: int, progress: Progress | None = None
) -> Ids:
    """Read ``head tail relation`` ids after a count into columns (head, relation, tail)."""
    first, count, blocks = _counted(path, "triples", progress)
    found = _rows(path, blocks, [entities, entities, relations])
    _check_count(path, first, "triples", count, len(found))
    return found


def read_openke_labelled(path: Path, entities: int, relations: int) -> Labelled:
    """Read ``head tail relation ±1`` lines (no count) for triplet classification."""
    found = _rows(path, read_blocks(path), [entities, entities, relations], columns=4)
    if not len(found):
        raise UserError(f"{path}: the file is empty")
    return Labelled(found[:, :3].copy(), found[:, 3] == 1, path.name)


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


def _rows(path: Path, blocks: Blocks, sizes: list[int], columns: int = 3) -> Ids:
    """Return columns (head, relation, tail), and a label ±1 as the fourth column if there is one.

    ``sizes`` are those of the columns of the file. A block with a flaw, or with lines that are
    unusual, is read line by line.
    """
    parts = [np.empty((0, columns), np.int32)]
    for number, block in blocks:
        rows = quick_rows(block, columns)
        if rows is None or not (
            ((rows[:, :3] >= 0) & (rows[:, :3] < sizes)).all() and (abs(rows[:, 3:]) == 1).all()
        ):
            lines = filled_lines(path, [(number, block)])
            checked = [_row(f"{path}:{place}", line, sizes, columns) for place, line in lines]
            rows = np.array(checked, np.int64).reshape(-1, columns)
        parts.append(rows[:, [0, 2, 1, 3][:columns]].astype(np.int32))
    return np.concatenate(parts)


def quick_rows(block: bytes, columns: int) -> Longs | None:
    """Return the integers [n, columns] of lines that hold nothing else, ten times as fast."""
    row = rb"-?[0-9]{1,18}(?:[ \t]-?[0-9]{1,18}){%d}(?:\r?\n|\Z)" % (columns - 1)
    if not re.fullmatch(rb"(?:%b)++" % row, block):
        return None
    return np.fromstring(block, np.int64, sep=" ").reshape(-1, columns)


def _row(where: str, line: str, sizes: list[int], columns: int) -> list[int]:
    fields = line.split()
    if len(fields) != columns:
        raise UserError(f"{where}: expected {columns} integers, found {len(fields)}: {shown(line)}")
    if not all(re.fullmatch(r"-?[0-9]{1,18}", field) for field in fields):
        raise UserError(f"{where}: not all integers: {shown(line)}")
    row = [int(field) for field in fields]
    for what, value, size in zip(("head", "tail", "relation"), row, sizes, strict=False):
        if not 0 <= value < size:
            raise UserError(f"{where}: {what} id {value} is out of range 0…{size - 1}")
    if row[3:] not in ([], [1], [-1]):
        raise UserError(f"{where}: the label must be 1 or -1, not {row[3]}")
    return row
