"""A file in pieces of bounded size: blocks of whole lines, and lines of text."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nscaching.errors import UserError

Progress = Callable[[str, int, int], None]
"""Called with (the task, units done, units in all)."""

BLOCK = 4 << 20
LINE_LIMIT = 16 << 20  # bytes; a longer line means a broken file

# Deflate packs tables of names 3 to 30 times. A file that was packed 250 times is an attack.
UNPACKED_TIMES = 250
UNPACKED_FREE = 256 << 20  # bytes that any file may unpack to

# A run of blank lines, or one line: a file of a billion blank lines is read in seconds.
LINES = re.compile(rb"[ \t\r\n]*\n|[^\n]+\n?")

# Binary files hold control characters, tables of names do not; the tab is a separator.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an error of reading or unpacking into a UserError of one line."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error


def read_blocks(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines as bytes) for each block; unpacks a ``.gz``."""
    number, rest, unpacked = 1, b"", 0
    with told(path), path.open("rb") as raw:
        size = path.stat().st_size
        packed = path.suffix.lower() == ".gz"
        file = gzip.GzipFile(fileobj=raw) if packed else raw
        while block := file.read(BLOCK):
            unpacked += len(block)
            if packed and unpacked > max(UNPACKED_FREE, UNPACKED_TIMES * size):
                raise UserError(
                    f"{path}: unpacks to more than {UNPACKED_TIMES} times its size: "
                    "give it unpacked if that is meant"
                )
            if progress is not None and size:
                progress(f"reading {path.name}", min(raw.tell(), size), size)
            end = block.find(b"\n")
            if len(rest) + (end if end >= 0 else len(block)) > LINE_LIMIT:
                raise UserError(f"{path}:{number}: the line is longer than {LINE_LIMIT:,} bytes")
            cut = block.rfind(b"\n") + 1
            if cut:
                whole = rest + block[:cut]
                yield number, whole
                number += whole.count(b"\n")
                rest = block[cut:]
            else:
                rest += block
    if rest:
        yield number, rest


def lines_of(path: Path, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line of some blocks; blank lines in a row are one text."""
    for number, block in blocks:
        for raw in LINES.findall(block):
            if not raw.translate(None, b" \t\r\n"):
                yield number, raw.translate(None, b"\r").removesuffix(b"\n").decode()
            else:
                yield number, _decoded(path, number, raw)
            number += raw.count(b"\n")


def _decoded(path: Path, number: int, raw: bytes) -> str:
    """Return the text of a line without its end; refuse other control characters than tabs."""
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        what = f"not UTF-8: {error.reason} at byte {error.start}"
        raise UserError(f"{path}:{number}: {what}") from None
    if odd := CONTROL.search(text):
        raise UserError(f"{path}:{number}: control character {odd[0]!r} in {shown(text)}")
    return text


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line that is not blank."""
    return (item for item in lines_of(path, read_blocks(path)) if item[1].strip())


def shown(text: str, most: int = 80) -> str:
    """Quote a line for an error message, cut to a readable length."""
    return repr(text if len(text) <= most else text[:most] + "…")
