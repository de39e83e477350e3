"""Tables → triples and labels. An error names the file and the line number, and shows the line."""

import csv
import itertools
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from nscaching.data.index import Ids
from nscaching.data.readers.blocks import (
    LINE_LIMIT,
    Progress,
    filled_lines,
    lines_of,
    read_blocks,
    shown,
)
from nscaching.data.readers.quick_table import NameTable, QuickTable
from nscaching.errors import UserError

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")
HEADERS = {("head", "relation", "tail"), ("subject", "predicate", "object"), ("h", "r", "t")}

Line = tuple[int, str, list[str]]
"""Line number, line, columns."""


def file_suffix(path: Path) -> str:
    """Return the suffix of the format: of ``a.tsv.gz``, ``.tsv``."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def read_triples(
    path: Path,
    entities: NameTable,
    relations: NameTable,
    notes: list[str] | None = None,
    progress: Progress | None = None,
) -> Ids:
    """Read ``head relation tail`` lines into ids [n, 3], adding new names to the tables.

    The first line decides whether tabs, commas or spaces separate the names. A first line such as
    "head, relation, tail" is a header: the reader skips the line and adds a note.
    """
    blocks = read_blocks(path, progress)
    parts: list[Ids] = []
    quick = QuickTable(entities, relations)
    separator, start, plain = "", True, False
    for block in blocks:
        if not separator:
            first = next((line for _, line in lines_of(path, [block]) if line.strip()), None)
            if first is None:
                continue
            separator = _tell_separator(path, first)
            plain = _is_header(first.split(separator))
        if separator == ",":  # quoted names may continue in the next block
            lines = _split_csv(path, lines_of(path, itertools.chain([block], blocks)))
        elif plain or (ids := quick.read(block[1], separator)) is None:
            lines = _split_plain(lines_of(path, [block]), separator)
        else:
            parts.append(ids)
            start = False
            continue
        parts.append(_plain_ids(path, lines, start, entities, relations, notes))
        start = plain = False
    if not separator:
        raise UserError(f"{path}: the file is empty")
    quick.flush()
    found = np.concatenate(parts)
    if not len(found):
        raise UserError(f"{path}: the file holds no triples")
    return found


def _tell_separator(path: Path, line: str) -> str:
    is_csv, commas = file_suffix(path) == ".csv", line.count(",")
    if "\t" in line and not (is_csv and commas):  # quoted names of a CSV may hold tabs
        return "\t"
    return "," if is_csv or commas == 2 else " "


def _is_header(names: list[str]) -> bool:
    return tuple(name.lower() for name in names) in HEADERS


def _plain_ids(
    path: Path,
    lines: Iterable[Line],
    start: bool,
    entities: NameTable,
    relations: NameTable,
    notes: list[str] | None,
) -> Ids:
    """Return the ids [n, 3] of the names of lines; at the ``start``, a header is skipped."""
    ids = array("i")
    for number, line, columns in lines:
        if len(columns) != 3:
            raise UserError(
                f"{path}:{number}: expected 3 columns (head, relation, tail), "
                f"found {len(columns)}: {shown(line)}"
            )
        head, relation, tail = (column.strip(" ") for column in columns)
        if start and _is_header([head, relation, tail]):
            start = False
            if notes is not None:
                notes.append(f"{path.name}: the first line, {shown(line)}, is taken for a header")
            continue
        start = False
        if not (head and relation and tail):
            raise UserError(f"{path}:{number}: a name is empty: {shown(line)}")
        ids.append(entities[head])
        ids.append(relations[relation])
        ids.append(entities[tail])
    return np.array(ids, dtype=np.int32).reshape(-1, 3)


def _split_plain(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[Line]:
    for number, line in lines:
        if line.strip():
            # Spaces may come in runs; other blanks, such as the no-break space, belong to a name.
            columns = line.split(separator)
            yield number, line, columns if separator == "\t" else [c for c in columns if c]


def _split_csv(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Line]:
    """Split by the csv rules, so that quoted names may hold commas and line breaks."""
    record: list[tuple[int, str]] = []  # the lines that the reader took for this record
    size = 0

    def feed() -> Iterator[str]:
        nonlocal size
        for item in lines:
            if not record and not item[1].strip():  # blank lines count inside quotes only
                continue
            record.append(item)
            size += len(item[1]) + 1
            if size > LINE_LIMIT:  # such as by a quote that is never closed
                raise UserError(
                    f"{path}:{record[0][0]}: the record is longer than {LINE_LIMIT:,} characters"
                )
            yield item[1] + "\n"

    reader = csv.reader(feed(), skipinitialspace=True, strict=True)
    usual = csv.field_size_limit(LINE_LIMIT)
    try:
        for columns in reader:
            if len(columns) > 1 or "".join(columns).strip():  # not a pair of quotes alone
                yield *record[0], columns
            record.clear()
            size = 0
    except csv.Error as error:
        number, line = record[0]
        raise UserError(f"{path}:{number}: not valid CSV ({error}): {shown(line)}") from None
    finally:
        csv.field_size_limit(usual)


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
