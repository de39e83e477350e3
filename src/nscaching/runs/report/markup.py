"""Pieces of HTML. Every word that is not the program's own goes through ``text``."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from nscaching.runs.escaping import is_obeyed, shorten

__all__ = ["badge", "bar", "fold", "name", "number", "score", "section", "table", "text"]

MOST = 80
"""Characters of a name that are shown."""

CONTROL_PICTURES = 0x2400


def text(value: object, most: int = MOST) -> str:
    """Return a value as HTML text, also for attributes: short, escaped, nothing invisible."""
    return html.escape("".join(map(_visible, shorten(str(value), most))), quote=True)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(CONTROL_PICTURES + code)
    if is_obeyed(character):
        return f"⟨U+{code:04X}⟩"
    return character


def name(value: str, most: int = MOST) -> str:
    """Return a name of the data's, kept apart from the direction of the text around it."""
    shown = text(value, most) if value.strip() else "⟨empty⟩"
    for joint in "_/":  # where a long name had best be broken
        shown = shown.replace(joint, f"{joint}<wbr>")
    return f"<bdi>{shown}</bdi>"


def number(value: float) -> str:
    """Return a number with about four figures, as people read it."""
    if not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        return f"{value:.2e}".replace("-", "−")
    places = 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4
    return f"{value:,.{places}f}".replace("-", "−")


def score(value: float) -> str:
    """Return a score with two places, as they stand below each other."""
    return f"{value:.2f}".replace("-", "−")


def bar(share: float) -> str:
    """Return a bar that is a share of 0 to 1 long, the number beside it."""
    width = 100 * min(1.0, max(0.0, share))
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span>{share:.3f}'


def badge(word: str, kind: str = "") -> str:
    """Return a small word in a frame."""
    return f'<span class="badge {kind}">{word}</span>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table of HTML cells in a box of its own to scroll; all but the first are figures."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>\n'
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def fold(summary: str, content: str) -> str:
    """Return content that opens on request."""
    return f"<details><summary>{summary}</summary>\n{content}</details>\n"


def section(title: str, hint: str, content: str) -> str:
    """Return a part of the page; the hint says in a sentence how to read it."""
    explained = f'<p class="hint">{hint}</p>\n' if hint else ""
    return f"<section>\n<h2>{title}</h2>\n{explained}{content}</section>\n"
