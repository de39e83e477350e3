"""The report of a run: one HTML page that needs nothing else, no network and no script."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.errors import UserError, user_path, flag
from nscaching.files import PARTIAL, free_path
from nscaching.runs.report.page import BEGIN, END, render
from nscaching.runs.layout import REPORT

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["render", "write_report"]


def write_report(
    run: Run,
    path: str | Path,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the report, whole or not at all; ``progress`` hears of a ranking, if one is needed.

    The report in the run's own folder is made anew; any other file stays, unless ``overwrite``.
    """
    target = user_path(path)
    if target.is_dir():
        raise UserError(f"{target} is a folder; {flag('out', 'path')} names a file")
    exists = target.exists() or target.is_symlink()
    if exists and not overwrite and not _is_own(run, target):
        raise UserError(
            f"{target} exists already; choose another {flag('out', 'path')}, or say "
            f"{flag('overwrite', 'overwrite=True')}"
        )
    content = render(run, progress).encode()
    unfinished = free_path(target.with_name(target.name + PARTIAL))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            os.replace(unfinished, target)  # noqa: PTH105  (the name says that it replaces)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
    return target


def _is_own(run: Run, path: Path) -> bool:
    """Say whether a file is the report of the run's folder, and a page that nscaching wrote."""
    if run.path is None or path.name != REPORT or path.is_symlink() or not path.is_file():
        return False
    return path.parent.resolve() == run.path.resolve() and _is_page(path)


def _is_page(path: Path) -> bool:
    """Say whether a file begins and ends as a report does; one that cannot be read does not."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(BEGIN))
            file.seek(max(0, path.stat().st_size - len(END)))
            return (begin, file.read(len(END))) == (BEGIN.encode(), END.encode())
    except OSError:
        return False
