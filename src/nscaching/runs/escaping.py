"""Names from data may hold anything: how they are written where a reader might obey them."""

from __future__ import annotations

import html
import re
import unicodedata

__all__ = ["is_obeyed", "json_text", "markdown", "shorten", "visible"]

# They turn the text after them around.
BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
# They are not seen at all, and no script needs them (as some need U+200C and U+200D).
UNSEEN = {0x180E, 0x200B, 0xFEFF, *range(0x2060, 0x2065), *range(0xFFF9, 0xFFFC)}
TAGS = range(0xE0000, 0xE0080)
# What Markdown obeys anywhere, and at the begin of a line.
MARKDOWN = re.compile(r"([\\`*_\[\]|~]|^[#+=-])")


def is_obeyed(character: str) -> bool:
    """Tell whether a terminal or a reader would obey a character, or not see it."""
    code = ord(character)
    if code in BIDI or code in UNSEEN or code in TAGS:
        return True
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """Return text for a terminal, on one line: what would be obeyed is written as \\x1b or so."""
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if is_obeyed(c) else c for c in text)


def shorten(text: str, most: int) -> str:
    """Leave out the middle of a long text: what tells names apart often stands at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most - most // 2 - 1]}…{text[len(text) - most // 2 :]}"


def json_text(text: str) -> str:
    """Return JSON that means the same, without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(_json_escape(c) if c != "\n" and is_obeyed(c) else c for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no markup, no HTML, no link, on one line."""
    shown = html.escape(MARKDOWN.sub(r"\\\1", visible(text)), quote=False)
    return shown.replace("://", ":&#47;&#47;")  # which would become a link by itself
