"""Files → triples. Every error is one line that names the file, the line number and the line."""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

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


class NameTable(dict[str, int]):
    """Names numbered in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line that is not blank; ``.gz`` is unpacked on the way."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text and not text.isspace():
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


def shown(text: str, most: int = 80) -> str:
    """Quote a line for an error message, cut to a readable length."""
    return repr(text if len(text) <= most else text[:most] + "…")


def table_suffix(path: Path) -> str:
    """Return the suffix that tells the format, looking behind ``.gz``."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def split_columns(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (line number, line, columns); tabs, commas or spaces are told from the first line."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path}: the file is empty")
    if "\t" in first[1]:
        separator: str | None = "\t"
    elif table_suffix(path) == ".csv" or first[1].count(",") == 2:
        yield from _split_csv(path, first, lines)
        return
    else:
        separator = None  # any run of spaces
    yield first[0], first[1], first[1].split(separator)
    for number, line in lines:
        yield number, line, line.split(separator)


def _split_csv(
    path: Path, first: tuple[int, str], lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, str, list[str]]]:
    """Split by the csv rules, so that quoted names may hold commas and line breaks."""
    at = first  # the line that the reader took last

    def feed() -> Iterator[str]:
        nonlocal at
        yield first[1] + "\n"
        for at in lines:
            yield at[1] + "\n"

    reader = csv.reader(feed(), skipinitialspace=True, strict=True)
    while True:
        try:
            columns = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{path}:{at[0]}: not valid CSV ({error}): {shown(at[1])}") from None
        if columns is None:
            return
        yield at[0], at[1], columns


def read_triples(path: Path, entities: NameTable, relations: NameTable) -> Ids:
    """Read ``head relation tail`` lines into ids [n, 3], adding new names to the tables."""
    ids = array("i")
    start = True
    for number, line, columns in split_columns(path):
        if len(columns) != 3:
            raise UserError(
                f"{path}:{number}: expected 3 columns (head, relation, tail), "
                f"found {len(columns)}: {shown(line)}"
            )
        head, relation, tail = (column.strip() for column in columns)
        if start and (head.lower(), relation.lower(), tail.lower()) in HEADERS:
            start = False
            continue
        start = False
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
    for number, line in read_lines(path):
        name, tab, label = line.partition("\t")
        if not (tab and name.strip() and label.strip()):
            raise UserError(
                f"{path}:{number}: expected an entity, a tab and a label: {shown(line)}"
            )
        labels[name.strip()] = label.strip()
    return labels


# The OpenKE format: a count line, then integers, with columns (head, tail, relation).


def read_openke_names(path: Path) -> list[str]:
    """Read ``name id`` lines after a count; the ids must be 0 … count−1, each once."""
    count, lines = _counted(path, "names")
    names: list[str | None] = [None] * count
    for number, line in lines:
        name, _, identifier = line.strip().replace("\t", " ").rpartition(" ")
        if not (name.strip() and identifier.isascii() and identifier.isdigit()):
            raise UserError(f"{path}:{number}: expected a name and an id: {shown(line)}")
        if int(identifier) >= count:
            raise UserError(f"{path}:{number}: id {identifier} is out of range 0…{count - 1}")
        if names[int(identifier)] is not None:
            raise UserError(f"{path}:{number}: id {identifier} is given twice")
        names[int(identifier)] = name.strip()
    return [name for name in names if name is not None]


def read_openke_ids(path: Path, entities: int, relations: int) -> Ids:
    """Read ``head tail relation`` ids after a count into columns (head, relation, tail)."""
    _, lines = _counted(path, "triples")
    ids, numbers = _integers(path, lines, 3)
    _check_range(path, ids, numbers, (entities, entities, relations))
    return ids[:, [0, 2, 1]]


def read_openke_labelled(path: Path, entities: int, relations: int) -> Labelled:
    """Read ``head tail relation ±1`` lines (no count) for triplet classification."""
    ids, numbers = _integers(path, read_lines(path), 4)
    _check_range(path, ids[:, :3], numbers, (entities, entities, relations))
    wrong = np.flatnonzero(np.abs(ids[:, 3]) != 1)
    if len(wrong):
        line = numbers[wrong[0]]
        raise UserError(f"{path}:{line}: the label must be 1 or -1, not {ids[wrong[0], 3]}")
    return Labelled(ids[:, [0, 2, 1]], ids[:, 3] == 1, path.name)


def _counted(path: Path, what: str) -> tuple[int, Iterator[tuple[int, str]]]:
    """Read the count line; the returned lines raise at their end when the count was wrong."""
    lines = read_lines(path)
    number, line = next(lines, (0, ""))
    if not number:
        raise UserError(f"{path}: the file is empty")
    if not (line.strip().isascii() and line.strip().isdigit()):
        raise UserError(f"{path}:{number}: expected the number of {what}, found {shown(line)}")
    count = int(line)

    def rest() -> Iterator[tuple[int, str]]:
        seen = 0
        for item in lines:
            seen += 1
            if seen <= count:
                yield item
        if seen != count:
            raise UserError(f"{path}:{number}: says {count:,} {what}, but {seen:,} follow")

    return count, rest()


def _integers(path: Path, lines: Iterable[tuple[int, str]], columns: int) -> tuple[Ids, array[int]]:
    """Read integer columns [n, columns] and the line number of each row."""
    ids, numbers = array("i"), array("q")
    for number, line in lines:
        fields = line.split()
        if len(fields) != columns:
            raise UserError(
                f"{path}:{number}: expected {columns} integers, found {len(fields)}: {shown(line)}"
            )
        try:
            ids.extend(map(int, fields))
        except (ValueError, OverflowError):
            raise UserError(f"{path}:{number}: not all integers: {shown(line)}") from None
        numbers.append(number)
    return np.frombuffer(ids, dtype=np.int32).reshape(-1, columns), numbers


def _check_range(path: Path, ids: Ids, numbers: array[int], bounds: tuple[int, int, int]) -> None:
    """Check columns (head, tail, relation) against their number of names."""
    wrong = np.argwhere((ids < 0) | (ids >= np.array(bounds)))
    if len(wrong):
        row, column = wrong[0]
        what = ("head", "tail", "relation")[column]
        raise UserError(
            f"{path}:{numbers[row]}: {what} id {ids[row, column]} is out of range "
            f"0…{bounds[column] - 1}"
        )
