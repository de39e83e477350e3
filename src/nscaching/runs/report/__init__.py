"""The report of a run: one HTML page that needs nothing else, no network and no script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.errors import UserError, flag, user_path
from nscaching.files import replacing, writing
from nscaching.runs.layout import REPORT
from nscaching.runs.report.page import render

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["render", "write_report"]

# The first and last bytes of every report, also of reports by older versions.
BEGIN = b'<!doctype html>\n<html lang="en">\n<head>\n'
END = b"<footer>Written by nscaching.</footer>\n</body>\n</html>\n"


def write_report(
    run: Run,
    path: str | Path,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the report; ``progress`` receives the progress of a ranking, if one is needed.

    The report in the run's own folder is replaced; any other file only with ``overwrite``.
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
    content = render(run, progress)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, shared=True) as partial:
        partial.write_text(content, encoding="utf-8", newline="\n")
    return target


def _is_own(run: Run, path: Path) -> bool:
    """Say whether a file is a report that nscaching wrote into the run's folder."""
    if run.path is None or path.name != REPORT or path.is_symlink() or not path.is_file():
        return False
    return path.parent.resolve() == run.path.resolve() and _is_report(path)


def _is_report(path: Path) -> bool:
    """Say whether a file begins and ends as a report does; an unreadable file does not."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(BEGIN))
            file.seek(max(0, path.stat().st_size - len(END)))
            return (begin, file.read(len(END))) == (BEGIN, END)
    except OSError:
        return False
