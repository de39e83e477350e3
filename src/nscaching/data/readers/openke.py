"""The OpenKE format: a count line, then integers, with columns (head, tail, relation)."""

import itertools
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.data.graph import Labelled
from nscaching.data.index import Ids
from nscaching.data.readers.blocks import Progress, filled_lines, read_blocks, shown
from nscaching.errors import UserError


def read_openke_names(path: Path) -> list[str]:
    """Read ``name id`` lines after a count; the ids must be 0 … count−1, each once."""
    count, lines = _counted(path, "names")
    names: dict[int, str] = {}
    seen: set[str] = set()
    for number, line in lines:
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
    return [names[place] for place in range(count)]


def read_openke_ids(
    path: Path, entities: int, relations: int, progress: Progress | None = None
) -> Ids:
    """Read ``head tail relation`` ids after a count into columns (head, relation, tail)."""
    ids = _integers(path, 3, "triples", progress)
    _check_range(path, ids, (entities, entities, relations), skip=1)
    return ids[:, [0, 2, 1]].astype(np.int32, copy=False)


def read_openke_labelled(path: Path, entities: int, relations: int) -> Labelled:
    """Read ``head tail relation ±1`` lines (no count) for triplet classification."""
    ids = _integers(path, 4)
    if not len(ids):
        raise UserError(f"{path}: the file is empty")
    _check_range(path, ids[:, :3], (entities, entities, relations))
    wrong = np.flatnonzero(np.abs(ids[:, 3]) != 1)
    if len(wrong):
        line = _line_number(path, wrong[0])
        raise UserError(f"{path}:{line}: the label must be 1 or -1, not {ids[wrong[0], 3]}")
    return Labelled(ids[:, [0, 2, 1]].astype(np.int32, copy=False), ids[:, 3] == 1, path.name)


def _natural(text: str) -> int | None:
    """Return a number 0, 1, 2, … of a sensible length, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _counted(path: Path, what: str) -> tuple[int, Iterator[tuple[int, str]]]:
    """Read the count line; the iterator of the other lines ends with an error at a wrong count."""
    lines = filled_lines(path)
    number, line = next(lines, (0, ""))
    if not number:
        raise UserError(f"{path}: the file is empty")
    count = _natural(line.strip())
    if count is None:
        raise UserError(f"{path}:{number}: expected the number of {what}, found {shown(line)}")

    def rest() -> Iterator[tuple[int, str]]:
        seen = 0
        for item in lines:
            seen += 1
            if seen <= count:
                yield item
        if seen != count:
            raise UserError(f"{path}:{number}: says {count:,} {what}, but {seen:,} follow")

    return count, rest()


def _integers(
    path: Path, columns: int, counted: str = "", progress: Progress | None = None
) -> npt.NDArray[Any]:
    """Read integer columns [n, columns]; ``counted`` names what the count line counts, if any."""
    quick = _quick_integers(path, columns, bool(counted), progress)
    if quick is not None:
        return quick
    lines = _counted(path, counted)[1] if counted else filled_lines(path)
    ids = array("q")
    for number, line in lines:
        fields = line.split()
        if len(fields) != columns:
            raise UserError(
                f"{path}:{number}: expected {columns} integers, found {len(fields)}: {shown(line)}"
            )
        if not all(re.fullmatch(r"-?[0-9]{1,18}", field) for field in fields):
            raise UserError(f"{path}:{number}: not all integers: {shown(line)}")
        ids.extend(map(int, fields))
    return np.frombuffer(ids, dtype=np.int64).reshape(-1, columns)


def _quick_integers(
    path: Path, columns: int, counted: bool, progress: Progress | None = None
) -> Ids | None:
    """Read block by block, ten times as fast, or return None when anything is unusual."""
    parts, count = [np.empty((0, columns), np.int32)], None
    try:
        for number, block in read_blocks(path, progress):
            if number == 1 and counted:
                first, _, block = block.partition(b"\n")
                count = _natural(first.decode("ascii", "replace").removesuffix("\r"))
            ids = _quick_block(block, columns)
            if ids is None:
                return None
            parts.append(ids)
    except UserError:  # the slow reader finds the error again, with its line
        return None
    found = np.concatenate(parts)
    return found if not counted or len(found) == count else None


def _quick_block(block: bytes, columns: int) -> Ids | None:
    """Return the integers [n, columns] of whole lines without anything else, or None."""
    if not block.endswith(b"\n"):
        block += b"\n" if block else b""
    row = rb"[0-9]{1,9}(?:[ \t][0-9]{1,9}){%d}\r?\n" % (columns - 1)  # nine digits fit int32
    if not re.fullmatch(rb"(?:%b)*+" % row, block):
        return None
    ids = np.fromstring(block, np.int32, sep=" ") if block else np.empty(0, np.int32)
    return ids.reshape(-1, columns)


def _line_number(path: Path, row: int) -> int:
    """Return the line number of a row; blank lines hold no row."""
    return next(itertools.islice(filled_lines(path), row, None))[0]


def _check_range(
    path: Path, ids: npt.NDArray[Any], bounds: tuple[int, int, int], skip: int = 0
) -> None:
    """Check columns (head, tail, relation), after ``skip`` lines, against their number of names."""
    wrong = np.argwhere((ids < 0) | (ids >= np.array(bounds)))
    if len(wrong):
        row, column = wrong[0]
        what = ("head", "tail", "relation")[column]
        raise UserError(
            f"{path}:{_line_number(path, row + skip)}: {what} id {ids[row, column]} is out of "
            f"range 0…{bounds[column] - 1}"
        )
