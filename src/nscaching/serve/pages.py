"""HTML: the templates of the package, and the addresses that they link to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from nscaching.runs.report import markup
from nscaching.serve.views import VIEWS

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STATIC = {
    "style.css": (markup.TEMPLATES / "style.css", "text/css; charset=utf-8"),
    "explore.css": (HERE / "static" / "explore.css", "text/css; charset=utf-8"),
    "explore.js": (HERE / "static" / "explore.js", "text/javascript; charset=utf-8"),
    "icon.svg": (HERE / "static" / "icon.svg", "image/svg+xml"),
}
PATHS = {view.name: view.path for view in VIEWS}


@cache
def static(name: str) -> tuple[bytes, str, str]:
    """Return the bytes of a file for browsers, its type, and a mark of its version."""
    path, kind = STATIC[name]
    content = path.read_bytes()
    return content, kind, hashlib.sha256(content).hexdigest()[:12]


def file_link(name: str) -> Markup:
    return Markup("/static/{}?v={}").format(name, static(name)[2])


def link(view: str, run: str = "", **values: Any) -> Markup:  # noqa: ANN401
    """Return the address of a view, escaped for an attribute; empty values are left out."""
    path = PATHS[view].replace("{run}", quote(run, safe=""))
    given = {name: 1 if value is True else value for name, value in values.items() if value}
    return escape(path + ("?" + urlencode(given, quote_via=quote, safe="") if given else ""))


def percent(share: float | None) -> Markup:
    """Return a probability as people read it."""
    if share is None:
        return Markup("–")
    shown = 100 * share
    if 0 < shown < 1:
        return Markup("&lt; 1 %")
    return Markup("{} %").format(f"{shown:.0f}" if shown < 99.5 else "99+" if share < 1 else "100")


@cache
def environment() -> Environment:
    made = markup.templates(HERE / "templates")
    made.globals |= {"link": link, "file": file_link}
    made.filters["percent"] = percent
    return made


def render(template: str, **values: Any) -> str:  # noqa: ANN401
    return environment().get_template(template).render(**values)


def page(view: str, values: Mapping[str, Any]) -> str:
    return render(f"{view}.html", view=view, **values)
