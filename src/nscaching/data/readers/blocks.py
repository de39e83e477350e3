"""A file in pieces of bounded size: blocks of whole lines, and lines of text."""

import codecs
import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nscaching.errors import UserError, reading

Progress = Callable[[str, int, int], None]  # receives (the task, units done, units in all)
Blocks = Iterator[tuple[int, bytes]]  # (number of the first line, whole lines) of each block

BLOCK = 4 << 20
LINE_LIMIT = 16 << 20  # bytes; a longer line means a broken file

# Deflate packs tables of names 3 to 30 times. A file that was packed 250 times is an attack.
UNPACKED_TIMES = 250
UNPACKED_FREE = 256 << 20  # bytes that any file may unpack to

# A run of blank lines, or one line: a file of a billion blank lines is read in seconds.
LINES = re.compile(rb"[ \t\r\n]*\n|[^\n]+\n?")

# Binary files hold control characters, tables of names do not; the tab is a separator.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def read_blocks(path: Path, progress: Progress | None = None) -> Blocks:
    """Yield the blocks of a file, without a byte order mark; a ``.gz`` is unpacked."""
    number, rest, unpacked = 1, b"", 0
    with reading(path, EOFError, zlib.error), path.open("rb") as raw:
        size = path.stat().st_size
        packed = path.suffix.lower() == ".gz"
        file = gzip.GzipFile(fileobj=raw) if packed else raw
        while block := file.read(BLOCK):
            if progress is not None and size:
                progress(f"reading {path.name}", min(raw.tell(), size), size)
            if not unpacked:
                block = block.removeprefix(codecs.BOM_UTF8)
            unpacked += len(block)
            if packed and unpacked > max(UNPACKED_FREE, UNPACKED_TIMES * size):
                what = f"unpacks to more than {UNPACKED_TIMES} times its size"
                raise UserError(f"{path}: {what}: give it unpacked if that is meant")
            if len(rest) + len(block.partition(b"\n")[0]) > LINE_LIMIT:
                raise UserError(f"{path}:{number}: the line is longer than {LINE_LIMIT:,} bytes")
            rest += block
            if cut := rest.rfind(b"\n") + 1:
                yield number, rest[:cut]
                number += rest.count(b"\n")
                rest = rest[cut:]
    if rest:
        yield number, rest


def stepping(progress: Progress | None, what: str, steps: int) -> Callable[[], None]:
    """Return a function to call at the begin of each of some steps of a task."""
    numbers = itertools.count()

    def step() -> None:
        if progress is not None:
            progress(what, next(numbers), steps)

    return step


def lines_of(path: Path, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line of some blocks; blank lines in a row are one text.

    Control characters other than tabs are refused.
    """
    for number, block in blocks:
        for raw in LINES.findall(block):
            blank = not raw.strip(b" \t\r\n")
            line = raw.translate(None, b"\r").removesuffix(b"\n") if blank else raw.rstrip(b"\r\n")
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                what = f"not UTF-8: {error.reason} at byte {error.start}"
                raise UserError(f"{path}:{number}: {what}") from None
            if not blank and (odd := CONTROL.search(text)):
                raise UserError(f"{path}:{number}: control character {odd[0]!r} in {shown(text)}")
            yield number, text
            number += raw.count(b"\n")


def filled_lines(path: Path, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line of some blocks that is not blank."""
    return (item for item in lines_of(path, blocks) if item[1].strip())


def split_first(path: Path, blocks: Blocks) -> tuple[int, str, Blocks]:
    """Return number and text of the first line that is not blank, and the blocks after it."""
    for block in blocks:
        for number, text in filled_lines(path, [block]):
            rest = block[1].partition(text.encode())[2].partition(b"\n")[2]
            return number, text, itertools.chain([(number + 1, rest)], blocks)
    raise UserError(f"{path}: the file is empty")


def shown(text: str, most: int = 80) -> str:
    """Quote a line for an error message, cut to a readable length."""
    return repr(text if len(text) <= most else text[:most] + "…")
