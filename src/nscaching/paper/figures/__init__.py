"""The figures of the paper, drawn from run folders as PNG, SVG and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from nscaching.errors import UserError, flag, unknown, user_path

if TYPE_CHECKING:
    from nscaching.paper.figures._drawing import Page
    from nscaching.runs.run import Run

__all__ = ["KINDS", "Drawn", "Kind", "draw"]

Kind = Literal["distribution", "convergence", "strategies", "sizes", "gradients", "cache"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass
class Drawn:
    """The files that ``draw`` wrote, and notes for the reader."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def draw(
    kind: str,
    runs: Sequence[Run | str | Path] | Run | str | Path,
    out: str | Path = "figures/",
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    trust: bool = False,
) -> Drawn:
    """Draw a figure of runs as PNG and SVG, and write its points as CSV.

    ``out`` is a folder (it exists, or its name ends in "/"), where the kind names the files, or
    else the beginning of the file names. Where runs need several images, such as one for each
    scoring function, each file name says which. ``progress`` receives (steps done, steps in all).
    The figure "cache" shows (head, relation, ?) or (?, relation, tail). ``trust`` lets run folders
    name code from outside the package.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    asked = {"head": head, "relation": relation, "tail": tail} if kind == "cache" else {}
    if not asked and (head or relation or tail):
        flags = f"{flag('head')}, {flag('relation')} and {flag('tail')}"
        raise UserError(f"{flags} are for the figure cache, not for {kind}")
    several = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    if not several:
        raise UserError(f"say which runs to draw: nscaching figures {kind} RUN …")
    from nscaching.files import refuse_existing
    from nscaching.paper.figures import cache, curves, distribution, sizes
    from nscaching.paper.figures._drawing import write
    from nscaching.paper.figures._logs import read

    makers: dict[str, Callable[..., list[Page]]] = {
        "distribution": distribution.pages, "convergence": curves.convergence,
        "strategies": curves.strategies, "sizes": sizes.pages, "gradients": curves.gradients,
        "cache": cache.pages,
    }  # fmt: skip
    report = progress or (lambda done, of: None)
    drawn, steps = Drawn(), len(several) + 1
    logs = read(several, drawn.notes, lambda done: report(done, steps), trust)
    pages = makers[kind](logs, drawn.notes, **asked)
    suffixes = distinct([page.suffix for page in pages]) if len(pages) > 1 else [""]
    prefixes = [_prefix(out, kind, suffix) for suffix in suffixes]
    files = [[Path(f"{prefix}.{end}") for end in ("png", "svg", "csv")] for prefix in prefixes]
    for path in chain.from_iterable(files):
        refuse_existing(path, flag("out"), overwrite)
    steps += len(pages) - 1
    for i, (page, (png, svg, csv)) in enumerate(zip(pages, files, strict=True)):
        report(len(several) + i, steps)
        write(page, png, svg, csv)
        drawn.files += [png, svg, csv]
    return drawn


def distinct(names: Sequence[str]) -> list[str]:
    """Return names that differ in more than the case of letters, which some disks do not keep."""
    found: dict[str, str] = {}
    for name in names:
        tried = chain([name], (f"{name}-{number}" for number in count(2)))
        free = next(name for name in tried if name.lower() not in found)
        found[free.lower()] = free
    return list(found.values())


def _prefix(out: str | Path, kind: str, suffix: str) -> Path:
    path = user_path(out)
    if path.is_dir() or str(out).endswith("/"):
        path /= kind
    elif path.suffix.lower() in (".png", ".svg", ".csv"):
        path = path.with_suffix("")
    return path.with_name(f"{path.name}-{suffix}") if suffix else path
