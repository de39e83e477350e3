"""The table as a file: the paper's with ours, side by side."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path

from nscaching.errors import UserError, flag
from nscaching.files import PARTIAL
from nscaching.paper.reproduce.store import Store
from nscaching.paper.reproduce.tables import PROTOCOLS, Figure, Row, Summary
from nscaching.paper.reproduce.task import Task

__all__ = ["check_own", "left_out", "markdown", "mean", "number", "signed", "write"]

MADE = "<!-- Made by nscaching reproduce"


def markdown(store: Store, rows: Sequence[Row], summaries: Sequence[Summary]) -> str:
    """Return the whole page."""
    task, sources = store.task, [path.name for path in store.sources or [store.path]]
    parts = [
        f"{MADE} {task.name} from {' and '.join(sources)}; it is made anew each time. -->",
        f"# {task.title}: the paper's table and ours",
    ]
    parts += ["\n".join(f"- {_safe(str(summary))}" for summary in summaries)] if summaries else []
    parts.append(
        f"{task.about}; the epoch of the best validation MRR; means over the seeds (± their "
        f"standard deviation), each a line of {' or '.join(f'`{name}`' for name in sources)} with "
        "all its settings. "
        "“paper’s protocol”: hyperparameters tuned under Bernoulli sampling and kept for all. "
        "“tuned for the cache”: tuned for nscaching; Bernoulli with the same settings beside it. "
        f"The verdict is by {task.measures[0].heading}; seconds are of training, evaluation apart, "
        "mean over the seeds."
    )
    parts += _overview(task, rows)
    notes: list[str] = []
    for data in dict.fromkeys(row.data for row in rows):
        parts.append(f"## {_safe(data)}")
        of_data = [row for row in rows if row.data == data]
        parts.append(
            _table([figure.measure.heading for figure in of_data[0].figures], of_data, notes)
        )
    parts += [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    parts += [f"{_safe(text)}." for text in left_out(store.left_out)]
    machines = {
        f"{line['device']}, nscaching {line.get('nscaching')}, PyTorch {line.get('torch')}"
        for line in store.lines
    }
    if machines:
        parts.append("Trained on: " + "; ".join(_safe(name) for name in sorted(machines)) + ".")
    return "\n\n".join(parts) + "\n"


def left_out(trainings: dict[str, int]) -> list[str]:
    """Say what was trained, but not on the data that the rows of its data set are of."""
    return [f"{name}: {n} trainings on other data are left out" for name, n in trainings.items()]


def _overview(task: Task, rows: Sequence[Row]) -> list[str]:
    """Show nscaching from scratch at a glance: the paper's figure and both of ours."""
    by_key = {(r.data, r.model, r.sampler, r.start, r.protocol): r for r in rows}
    cells = dict.fromkeys(
        (r.data, r.model) for r in rows if (r.sampler, r.start) == ("nscaching", "scratch")
    )
    if not cells:
        return []
    headings = ["data", "model", "paper"]
    for words in PROTOCOLS.values():
        headings += [words, "verdict", "our Bernoulli", "seconds"]
    lines = [headings, ["---"] * 2 + ["---:"] * (len(headings) - 2)]
    for data, model in cells:
        theirs, columns = "–", list[str]()
        for protocol in PROTOCOLS:
            mine = by_key.get((data, model, "nscaching", "scratch", protocol))
            rival = by_key.get((data, model, "bernoulli", "", protocol))
            beside = mean(rival.figures[0]) if rival else "–"
            if mine is None:
                columns += ["–", "–", beside, "–"]
                continue
            theirs = number(mine.figures[0], mine.figures[0].paper)
            columns += [mean(mine.figures[0]), _verdict(mine), beside, f"{mine.seconds:,.1f}"]
        lines.append([data, model, theirs, *columns])
    return [f"## nscaching from scratch: {task.measures[0].heading}", _lines(lines)]


def _verdict(row: Row) -> str:
    return f"**{row.verdict}**" if row.verdict.startswith("below") else row.verdict


def _lines(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(_safe(cell) for cell in line) + " |" for line in cells)


def _table(measures: Sequence[str], rows: Sequence[Row], notes: list[str]) -> str:
    headings = ["model", "sampler", "start", "settings", "verdict"]
    for name in measures:
        headings += [f"{name}, ours", "paper", "difference"]
    headings += ["seconds", "seeds"]
    lines = [headings, ["---"] * 5 + ["---:"] * (len(headings) - 5)]
    for row in rows:
        cells = [row.model, row.sampler, row.start or "–"]
        cells += [PROTOCOLS.get(row.protocol, row.protocol), _verdict(row)]
        for figure in row.figures:
            theirs = number(figure, figure.paper)
            if figure.note:
                theirs += _reference(figure.note, notes)
            cells += [mean(figure), theirs, signed(figure)]
        seeds = str(len(row.seeds))
        if row.short:
            seeds += _reference(f"{row.short:,} epochs only: fewer than in the paper.", notes)
        lines.append([*cells, f"{row.seconds:,.1f}", seeds])
    return _lines(lines)


def _reference(note: str, notes: list[str]) -> str:
    if note not in notes:
        notes.append(note)
    return f" [{notes.index(note) + 1}]"


def number(figure: Figure, value: float | None) -> str:
    """Write a figure as the paper does."""
    return "–" if value is None else f"{value:,.{figure.measure.digits}f}"


def mean(figure: Figure) -> str:
    """Write our figure, and how far seeds are apart."""
    ours = number(figure, figure.ours)
    return ours if figure.spread is None else f"{ours} ± {number(figure, figure.spread)}"


def signed(figure: Figure) -> str:
    """Write a difference with its sign."""
    if figure.difference is None:
        return "–"
    return f"{figure.difference:+,.{figure.measure.digits}f}"


def _safe(text: str) -> str:
    """Names of a file that others made may hold anything."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return html.escape(shown, quote=False).replace("|", "\\|")


def check_own(path: Path) -> None:
    """Refuse to replace a file that was not made here."""
    if not path.exists():
        return
    try:
        made = path.read_text(encoding="utf-8").startswith(MADE)
    except (OSError, ValueError):
        made = False
    if not made:
        raise UserError(f"{path} was not made by nscaching reproduce; choose another {flag('out')}")


def write(path: Path, text: str) -> None:
    """Write the page, whole or not at all."""
    check_own(path)
    unfinished = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)  # noqa: PTH105  (the name says that it replaces)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
