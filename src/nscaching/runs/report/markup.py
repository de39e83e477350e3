"""How values are shown on a page: text that may hold anything, names, and numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from nscaching.errors import as_flag, counted
from nscaching.runs.escaping import is_obeyed, shorten

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MOST = 80  # characters of a name that are shown


def text(value: object, most: int = MOST) -> Markup:
    """Return a value as HTML text: shortened, with invisible characters shown, and escaped."""
    if isinstance(value, Markup):
        return value
    return escape("".join(map(_visible, shorten(str(value), most))))


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # a control picture, such as ␀
    return f"⟨U+{code:04X}⟩" if is_obeyed(character) else character


def name(value: str, most: int = MOST) -> Markup:
    """Return a name from the data, isolated from the text direction around it."""
    shown = text(value, most) if value.strip() else Markup("⟨empty⟩")
    for joint in "_/":  # good places to break a long name
        shown = shown.replace(joint, joint + Markup("<wbr>"))
    return Markup("<bdi>{}</bdi>").format(shown)


def number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return fixed(int(value), 0)  # not −0
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        return f"{value:.2e}".replace("-", "−")
    return fixed(value, 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4)


def fixed(value: float, places: int) -> str:
    return f"{value:,.{places}f}".replace("-", "−")


def place(value: float) -> Markup:
    return Markup("{:.1f}").format(value)


def templates(*more: Path) -> Environment:
    """Return the templates, with those of more folders; ``text`` escapes every printed value."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *more]),
        autoescape=True,
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shown = text, name, number, fixed, place, as_flag, counted
    environment.filters |= {function.__name__: function for function in shown}
    environment.globals["policy"] = POLICY
    return environment
