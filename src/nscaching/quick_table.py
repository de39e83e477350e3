"""The fast twin of the table reader: a block of lines that holds nothing unusual, all at once."""

from __future__ import annotations

import re

__all__ = ["quick_names"]

CONTROLS = bytes(code for code in range(256) if code < 32 or code == 127)
UNUSUAL_TEXT = re.compile(r"[\x80-\x9f]|^\s+$", re.MULTILINE)  # control characters, blank lines


def quick_names(block: bytes, separator: str) -> list[str] | None:
    """Return the names of whole lines, three of each line, or None when anything is unusual.

    Unusual is whatever the plain reader would strip, skip or complain of.
    """
    gap = separator.encode()
    if not block.endswith(b"\n"):
        block += b"\n"
    lines = block.count(b"\n")
    kept = CONTROLS + gap
    shape = block.translate(None, bytes(code for code in range(256) if code not in kept))
    if shape == (gap + gap + b"\r\n") * lines:
        block = block.replace(b"\r\n", b"\n")
    elif shape != (gap + gap + b"\n") * lines:
        return None
    odd = [gap + gap, gap + b"\n", b"\n" + gap]  # an empty name
    if separator != " ":
        odd += [b" " + gap, gap + b" ", b" \n", b"\n "]  # one with spaces around it
    if block[:1] in (gap, b" ") or any(pair in block for pair in odd):
        return None
    try:
        text = block.decode()
    except UnicodeDecodeError:
        return None
    if not text.isascii() and (text[0] == "\ufeff" or UNUSUAL_TEXT.search(text)):
        return None
    return text[:-1].replace("\n", separator).split(separator)
