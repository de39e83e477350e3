"""Text for people: names that neither a terminal nor Markdown obeys, and durations."""

import html
import json
import re
import unicodedata

# These characters turn the text after them around.
OBEYED = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
# These characters are invisible, and no script needs them (some need U+200C and U+200D).
OBEYED |= {0x180E, 0x200B, 0xFEFF, *range(0x2060, 0x2065), *range(0xFFF9, 0xFFFC)}
OBEYED |= set(range(0xE0000, 0xE0080))  # tags
# Characters that Markdown obeys anywhere, and at the beginning of a line.
MARKDOWN = re.compile(r"([\\`*_\[\]|~]|^[#+=-])")


def is_obeyed(character: str) -> bool:
    """Tell whether a terminal would obey a character, or a reader not see it."""
    control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return control or ord(character) in OBEYED


def visible(text: str) -> str:
    """Return text for a terminal, on one line; control characters are written as \\x1b."""
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if is_obeyed(c) else c for c in text)


def shorten(text: str, most: int) -> str:
    """Leave out the middle of a long text: names often differ at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most - most // 2 - 1]}…{text[len(text) - most // 2 :]}"


def json_text(text: str) -> str:
    """Return equivalent JSON without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(json.dumps(c)[1:-1] if c != "\n" and is_obeyed(c) else c for c in text)


def markdown(text: str) -> str:
    """Return text that Markdown shows unchanged, on one line: no markup, no HTML, no link."""
    shown = html.escape(MARKDOWN.sub(r"\\\1", visible(text)), quote=False)
    return shown.replace("://", ":&#47;&#47;")  # an address would become a link by itself


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
