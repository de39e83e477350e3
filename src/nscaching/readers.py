"""Files → triples. Every error is one line that names the file, the line number and the line."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.errors import UserError
from nscaching.graph import Ids, Labelled

__all__ = [
    "TABLE_SUFFIXES",
    "NameTable",
    "read_labels",
    "read_openke_ids",
    "read_openke_labelled",
    "read_openke_names",
    "read_triples",
]

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")
HEADERS = {("head", "relation", "tail"), ("subject", "predicate", "object"), ("h", "r", "t")}

# A binary file holds these, a table of names does not; the tab is a separator.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class NameTable(dict[str, int]):
    """Names numbered in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line; ``.gz`` is unpacked on the way."""
    number = 0
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if odd := CONTROL.search(text):
                    raise UserError(
                        f"{path}:{number}: control character {odd[0]!r} in {shown(text)}"
                    )
                yield number, text
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line that is not blank."""
    return ((number, text) for number, text in read_lines(path) if text.strip())


def shown(text: str, most: int = 80) -> str:
    """Quote a line for an error message, cut to a readable length."""
    return repr(text if len(text) <= most else text[:most] + "…")


def table_suffix(path: Path) -> str:
    """Return the suffix that tells the format, looking behind ``.gz``."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def split_columns(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (line number, line, columns); tabs, commas or spaces are told from the first line."""
    lines = read_lines(path)
    first = next((item for item in lines if item[1].strip()), None)
    if first is None:
        raise UserError(f"{path}: the file is empty")
    lines = itertools.chain([first], lines)
    is_csv, commas = table_suffix(path) == ".csv", first[1].count(",")
    tabs = "\t" in first[1] and not (is_csv and commas)  # quoted names of a CSV may hold tabs
    if not tabs and (is_csv or commas == 2):
        yield from _split_csv(path, lines)
        return
    for number, line in lines:
        if line.strip():
            # Spaces may come in runs; other blanks, such as the no-break space, belong to a name.
            columns = line.split("\t") if tabs else [part for part in line.split(" ") if part]
            yield number, line, columns


def _split_csv(
    path: Path, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, str, list[str]]]:
    """Split by the csv rules, so that quoted names may hold commas and line breaks."""
    record: list[tuple[int, str]] = []  # the lines that the reader took for this record

    def feed() -> Iterator[str]:
        for item in lines:
            record.append(item)
            yield item[1] + "\n"

    reader = csv.reader(feed(), skipinitialspace=True, strict=True)
    while True:
        record.clear()
        try:
            columns = next(reader, None)
        except csv.Error as error:
            number, line = record[0]
            raise UserError(f"{path}:{number}: not valid CSV ({error}): {shown(line)}") from None
        if columns is None:
            return
        if len(columns) > 1 or "".join(columns).strip():  # not a blank line
            yield *record[0], columns


def read_triples(
    path: Path, entities: NameTable, relations: NameTable, notes: list[str] | None = None
) -> Ids:
    """Read ``head relation tail`` lines into ids [n, 3], adding new names to the tables.

    A first line such as "head, relation, tail" is a header: it is skipped, and noted.
    """
    ids = array("i")
    start = True
    for number, line, columns in split_columns(path):
        if len(columns) != 3:
            raise UserError(
                f"{path}:{number}: expected 3 columns (head, relation, tail), "
                f"found {len(columns)}: {shown(line)}"
            )
        head, relation, tail = (column.strip(" ") for column in columns)
        header = start and (head.lower(), relation.lower(), tail.lower()) in HEADERS
        start = False
        if header:
            if notes is not None:
                notes.append(f"{path.name}: the first line, {shown(line)}, is taken for a header")
            continue
        if not (head and relation and tail):
            raise UserError(f"{path}:{number}: a name is empty: {shown(line)}")
        ids.append(entities[head])
        ids.append(relations[relation])
        ids.append(entities[tail])
    if not ids:
        raise UserError(f"{path}: the file holds no triples")
    return np.frombuffer(ids, dtype=np.int32).reshape(-1, 3)


def read_labels(path: Path) -> dict[str, str]:
    """Read ``entity<TAB>label`` lines."""
    labels = {}
    for number, line in filled_lines(path):
        name, tab, label = (part.strip(" ") for part in line.partition("\t"))
        if not (tab and name and label):
            raise UserError(
                f"{path}:{number}: expected an entity, a tab and a label: {shown(line)}"
            )
        labels[name] = label
    if not labels:
        raise UserError(f"{path}: the file is empty")
    return labels


# The OpenKE format: a count line, then integers, with columns (head, tail, relation).


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


def read_openke_ids(path: Path, entities: int, relations: int) -> Ids:
    """Read ``head tail relation`` ids after a count into columns (head, relation, tail)."""
    ids = _integers(path, 3, counted="triples")
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
    """Read the count line; the returned lines raise at their end when the count was wrong."""
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


def _integers(path: Path, columns: int, counted: str = "") -> npt.NDArray[Any]:
    """Read integer columns [n, columns]; ``counted`` says what a count line counts, if any."""
    quick = _quick_integers(path, columns, bool(counted))
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


def _quick_integers(path: Path, columns: int, counted: bool) -> Ids | None:
    """Read by NumPy, ten times as fast, or return None when anything about the file is unusual."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ids: Ids = np.loadtxt(
                path, np.int32, comments=None, skiprows=int(counted), ndmin=2, encoding="utf-8"
            )
        count = _natural(next(filled_lines(path))[1].strip()) if counted else len(ids)
    except Exception:  # whatever it is, the slow reader finds it again and says where
        return None
    return ids if ids.shape == (count, columns) else None


def _line_number(path: Path, row: int) -> int:
    """Return the number of the line that holds the given row, blank lines not counting."""
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
