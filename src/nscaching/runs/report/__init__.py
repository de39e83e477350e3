"""The report of a run: one HTML page that needs nothing else, no network and no script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.errors import UserError, flag, user_path
from nscaching.files import check_new_file, replacing
from nscaching.runs.layout import REPORT

if TYPE_CHECKING:
    from nscaching.runs.run import Run

# The first and last bytes of every report, also of reports by older versions.
BEGIN = b'<!doctype html>\n<html lang="en">\n<head>\n'
END = b"<footer>Written by nscaching.</footer>\n</body>\n</html>\n"


def report(
    run: Run,
    path: str | Path = "",
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the report, one HTML page, to a path or else into the run folder.

    The report in the run's own folder is replaced; any other file only with ``overwrite``.
    ``progress`` receives the progress of a ranking, if one is needed.
    """
    from nscaching.runs.report.page import render

    if not path and run.path is None:
        raise UserError("the run is not saved: say where to write its report")
    target = user_path(path or (run.path or Path()) / REPORT)
    check_new_file(target, flag("out", "path"), overwrite or _is_own(run, target))
    content = render(run, progress)
    with replacing(target, shared=True) as partial:
        partial.write_text(content, encoding="utf-8", newline="\n")
    return target


def _is_own(run: Run, path: Path) -> bool:
    """Say whether a file is a report that nscaching wrote into the run's folder."""
    if run.path is None or path.name != REPORT or path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(len(BEGIN))
            file.seek(max(0, path.stat().st_size - len(END)))
            whole = (begin, file.read(len(END))) == (BEGIN, END)
    except OSError:
        return False
    return whole and path.parent.resolve() == run.path.resolve()
