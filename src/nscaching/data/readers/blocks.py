"""Bytes of a file in bounded pieces: blocks of whole lines, and lines of text."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nscaching.errors import UserError

__all__ = ["Progress", "bounded", "filled_lines", "lines_of", "read_blocks", "read_lines", "shown"]

Progress = Callable[[str, int, int], None]
"""Hears (what is going on, how much of it is done, of how much)."""

BLOCK = 4 << 20
LINE_LIMIT = 16 << 20  # bytes; a longer one is no name but a broken file

# Deflate packs tables of names some 3 to 30 times. What unpacks to more than this was made to.
UNPACKED_TIMES = 250
UNPACKED_FREE = 256 << 20  # bytes that may be unpacked from however little

# A binary file holds these, a table of names does not; the tab is a separator.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an error of the disk or of unpacking into one line."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error


@contextmanager
def bounded(path: Path, progress: Progress | None = None) -> Iterator[Callable[[], bytes]]:
    """Open a file and give what returns its next bytes, unpacked if it is a ``.gz``."""
    with told(path), path.open("rb") as raw:
        size = path.stat().st_size
        packed = path.suffix.lower() == ".gz"
        file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
        unpacked = 0

        def more() -> bytes:
            nonlocal unpacked
            block = file.read(BLOCK)
            unpacked += len(block)
            if packed and unpacked > max(UNPACKED_FREE, UNPACKED_TIMES * size):
                raise UserError(
                    f"{path}: unpacks to more than {UNPACKED_TIMES} times its size: "
                    "give it unpacked if that is meant"
                )
            if progress is not None and block and size:
                progress(f"reading {path.name}", min(raw.tell(), size), size)
            return block

        yield more


def read_blocks(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines as bytes) from begin to end of a file."""
    number, rest = 1, b""
    with bounded(path, progress) as more:
        while block := more():
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
    """Yield (line number, text) of every line of some blocks of a file."""
    for first, block in blocks:
        for number, raw in enumerate(block.removesuffix(b"\n").split(b"\n"), first):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                what = f"not UTF-8: {error.reason} at byte {error.start}"
                raise UserError(f"{path}:{number}: {what}") from None
            if odd := CONTROL.search(text):
                raise UserError(f"{path}:{number}: control character {odd[0]!r} in {shown(text)}")
            yield number, text


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line; ``.gz`` is unpacked on the way."""
    return lines_of(path, read_blocks(path, progress))


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line that is not blank."""
    return ((number, text) for number, text in read_lines(path) if text.strip())


def shown(text: str, most: int = 80) -> str:
    """Quote a line for an error message, cut to a readable length."""
    return repr(text if len(text) <= most else text[:most] + "…")
