"""Tables → triples and labels. An error names the file and the line number, and shows the line."""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nscaching.data.index import Ids
from nscaching.data.readers.blocks import (
    LINE_LIMIT,
    Blocks,
    Progress,
    filled_lines,
    lines_of,
    read_blocks,
    shown,
    split_first,
)
from nscaching.data.readers.name_table import END, NameTable, joined, number_triples
from nscaching.errors import UserError

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")
HEADERS = {("head", "relation", "tail"), ("subject", "predicate", "object"), ("h", "r", "t")}
ROWS = 100_000  # of a piece of names, where lines are read one by one

# Rows of three names, by their separator; a name has no spaces around it.
WORD = rb"[^\x00-\x20\x7f]++"
NAME = {"\t": rb"%b(?: ++%b)*+" % (WORD, WORD), " ": WORD}
QUICK = {
    gap: re.compile(rb"(?:%b\r?\n)++" % gap.encode().join([name] * 3)) for gap, name in NAME.items()
}
# Control characters, bytes that are not UTF-8, blank lines.
UNUSUAL_TEXT = re.compile(r"[\x80-\x9f\udc80-\udcff]|^\s+$", re.MULTILINE)

Line = tuple[int, str, list[str]]  # line number, line, columns


def file_suffix(path: Path) -> str:
    """Return the suffix of the format: of ``a.tsv.gz``, ``.tsv``."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def read_triples(
    path: Path,
    entities: NameTable,
    relations: NameTable,
    notes: list[str],
    progress: Progress | None = None,
) -> Ids:
    """Read ``head relation tail`` lines into ids [n, 3], adding new names to the tables."""
    return number_triples(triple_names(path, notes, progress), entities, relations)


def triple_names(path: Path, notes: list[str], progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the names of ``head relation tail`` lines in pieces, each name ended by END.

    The first line decides whether tabs, commas or spaces separate the names. A first line such as
    "head, relation, tail" is a header: the reader skips the line and adds a note.
    """
    separator, blocks = _after_header(path, notes, progress)
    if separator == ",":  # quoted names may continue in the next block
        pieces = _plain_names(path, _split_csv(path, lines_of(path, blocks)))
    else:
        pieces = itertools.chain.from_iterable(
            [quick]
            if (quick := quick_names(block[1], separator))
            else _plain_names(path, _split_plain(path, block, separator))
            for block in blocks
        )
    empty = True
    for piece in pieces:
        empty = False
        yield piece
    if empty:
        raise UserError(f"{path}: the file holds no triples")


def read_numbered(path: Path) -> list[tuple[int, list[str]]]:
    """Read ``head relation tail`` lines into (line number, names), as ``read_triples`` does."""
    return list(_rows(path, _lines(path)))


def _after_header(path: Path, notes: list[str], progress: Progress | None) -> tuple[str, Blocks]:
    """Return the separator and the blocks of a file; a header is skipped and noted."""
    number, first, blocks = split_first(path, read_blocks(path, progress))
    separator = _tell_separator(path, first)
    around = ' "' if separator == "," else " "
    header = [name.strip(around).lower() for name in first.split(separator)]
    if tuple(filter(None, header)) in HEADERS:
        notes.append(f"{path.name}: the first line, {shown(first)}, is taken for a header")
        return separator, blocks
    return separator, itertools.chain([(number, f"{first}\n".encode())], blocks)


def _lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, split into columns, without a header."""
    separator, blocks = _after_header(path, [], None)
    if separator == ",":
        return _split_csv(path, lines_of(path, blocks))
    split = (_split_plain(path, block, separator) for block in blocks)
    return itertools.chain.from_iterable(split)


def line_naming(path: Path, name: str, places: tuple[int, ...]) -> int | None:
    """Return the number of the first line that has a name in one of some columns."""
    lines = _lines(path)
    found = (n for n, _, columns in lines if name in [columns[at].strip(" ") for at in places])
    return next(found, None)


def _tell_separator(path: Path, line: str) -> str:
    is_csv, commas = file_suffix(path) == ".csv", line.count(",")
    if "\t" in line and not (is_csv and commas):  # quoted names of a CSV may hold tabs
        return "\t"
    return "," if is_csv or commas == 2 else " "


def quick_names(block: bytes, separator: str) -> bytes | None:
    """Return the names of whole lines, each ended by END, or None if any line is unusual.

    Unusual is whatever the plain way would strip, skip or refuse.
    """
    if not QUICK[separator].fullmatch(block):
        return None
    if not block.isascii() and UNUSUAL_TEXT.search(block.decode(errors="surrogateescape")):
        return None
    ends = bytes.maketrans(separator.encode() + b"\n", 2 * END.encode())
    return block.translate(ends, b"\r")


def _plain_names(path: Path, lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield the names of lines in pieces, each name ended by END; refuse what is no triple."""
    names: list[str] = []
    for _, row in _rows(path, lines):
        names += row
        if len(names) >= 3 * ROWS:
            yield joined(names)
            names.clear()
    if names:
        yield joined(names)


def _rows(path: Path, lines: Iterable[Line]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the three names of each line; refuse what is no triple."""
    for number, line, columns in lines:
        if len(columns) != 3:
            what = f"expected 3 columns (head, relation, tail), found {len(columns)}"
            raise UserError(f"{path}:{number}: {what}: {shown(line)}")
        row = [column.strip(" ") for column in columns]
        if not all(row):
            raise UserError(f"{path}:{number}: a name is empty: {shown(line)}")
        yield number, row


def _split_plain(path: Path, block: tuple[int, bytes], separator: str) -> Iterator[Line]:
    for number, line in filled_lines(path, [block]):
        # Spaces may come in runs; other blanks, such as the no-break space, belong to a name.
        yield number, line, [c for c in line.split(separator) if c or separator == "\t"]


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
                what = f"the record is longer than {LINE_LIMIT:,} characters"
                raise UserError(f"{path}:{record[0][0]}: {what}")
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
    labels = {}
    for number, line in filled_lines(path, read_blocks(path)):
        name, tab, label = (part.strip(" ") for part in line.partition("\t"))
        if not (tab and name and label):
            what = "expected an entity, a tab and a label"
            raise UserError(f"{path}:{number}: {what}: {shown(line)}")
        labels[name] = label
    if not labels:
        raise UserError(f"{path}: the file is empty")
    return labels
