"""A hook of MkDocs: parts of the README have one home, and links out of docs/ become their text."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PART = re.compile(r"<!-- README: (\w+) -->")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)#]*)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401
    """Put in parts of the README; a link to a file that the site has not is its text alone."""
    name, folder = page.file.src_uri, (DOCS / page.file.src_uri).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if not target.exists():
            log.warning("%s links to %s, which does not exist", name, link[2])
        return link[0] if DOCS in target.parents else link[1]

    return LINK.sub(text, PART.sub(lambda part: readme(part[1]), markdown))


def readme(part: str) -> str:
    """Return what stands between <!-- part --> and <!-- /part --> in the README."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = page.partition(f"<!-- {part} -->")[2].partition(f"<!-- /{part} -->")[0]
    if not found.strip():
        log.warning("README.md has no part %s", part)
    return re.sub(r"\[(?:docs/)?([^\]]*)\]\(docs/", r"[\1](", found).strip()
