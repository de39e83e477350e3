"""The table as a Markdown page: the paper's values and ours side by side."""

import html
from collections.abc import Sequence
from pathlib import Path

from nscaching.errors import UserError, flag
from nscaching.paper.reproduce.plan import PROTOCOLS, Cell
from nscaching.paper.reproduce.results import Results
from nscaching.paper.reproduce.rows import Row, Summary

MADE = "<!-- Made by nscaching reproduce"


def markdown(results: Results, rows: Sequence[Row], summaries: Sequence[Summary]) -> str:
    """Return the whole page."""
    table, files = results.table, [path.name for path in results.files]
    parts = [
        f"{MADE} {table.name} from {' and '.join(files)}; each call writes it again. -->",
        f"# {table.title}: the paper's table and ours",
    ]
    parts += _overview(rows)
    if summaries:
        parts.append("## Summary")
        parts.append("\n".join(f"- {_safe(str(summary))}" for summary in summaries))
    parts.append("## How to read the tables")
    parts.append(
        f"{table.about}; the epoch of the best validation MRR. Values are means over the seeds (± "
        "their standard deviation). Each seed is one line of "
        f"{' or '.join(f'`{name}`' for name in files)}, with all its settings. “paper’s protocol”: "
        "hyperparameters tuned under Bernoulli sampling and kept for all samplers. “tuned for the "
        "cache”: hyperparameters tuned for nscaching; Bernoulli has the same settings. The verdict "
        f"compares {table.measures[0].heading}. Seconds are seconds of training without "
        "evaluation, mean over the seeds."
    )
    notes: list[str] = []
    for data in dict.fromkeys(row.cell.data for row in rows):
        parts.append(f"## {_safe(data)}")
        parts.append(_all_rows([row for row in rows if row.cell.data == data], notes))
    parts += [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    parts += [f"{_safe(text)}." for text in left_out(results)]
    machines = {
        f"{line['device']}, nscaching {line.get('nscaching')}, PyTorch {line.get('torch')}"
        for line in (result.line for result in results.list)
    }
    if machines:
        parts.append("Trained on: " + "; ".join(_safe(name) for name in sorted(machines)) + ".")
    return "\n\n".join(parts) + "\n"


def left_out(results: Results) -> list[str]:
    """Say how many trainings the rows leave out because their data were other than the rows'."""
    counts = results.left_out.items()
    return [f"{name}: {count} trainings on other data are left out" for name, count in counts]


def _overview(rows: Sequence[Row]) -> list[str]:
    """Show nscaching from scratch at a glance: the paper's value and both of ours."""
    by_cell = {row.cell: row for row in rows}
    shown = [row for row in rows if row.cell[2:4] == ("nscaching", "scratch")]
    if not shown:
        return []
    headings = ["data", "model", "paper"]
    for words in PROTOCOLS.values():
        headings += [words, "verdict", "our Bernoulli", "seconds"]
    lines = []
    for (data, model), papers in {row.cell[:2]: row.first.papers for row in shown}.items():
        cells = [data, model, papers]
        for protocol in PROTOCOLS:
            mine = by_cell.get(Cell(data, model, "nscaching", "scratch", protocol))
            rival = by_cell.get(Cell(data, model, "bernoulli", "", protocol))
            cells += [str(mine.first), _verdict(mine)] if mine else ["–", "–"]
            cells.append(str(rival.first) if rival else "–")
            cells.append(f"{mine.seconds:,.1f}" if mine else "–")
        lines.append(cells)
    heading = shown[0].first.measure.heading
    return [f"## nscaching from scratch: {heading}", _table(headings, 2, lines)]


def _all_rows(rows: Sequence[Row], notes: list[str]) -> str:
    """Return the table of a data set; remarks are numbered in ``notes``."""

    def remark(text: str) -> str:
        if text and text not in notes:
            notes.append(text)
        return f" [{notes.index(text) + 1}]" if text else ""

    headings = ["model", "sampler", "start", "settings", "verdict"]
    for figure in rows[0].figures:
        headings += [f"{figure.measure.heading}, ours", "paper", "difference"]
    lines = []
    for row in rows:
        _, model, sampler, start, _ = row.cell
        cells = [model, sampler, start or "–", row.cell.settings, _verdict(row)]
        for figure in row.figures:
            cells += [str(figure), figure.papers + remark(figure.note), figure.signed]
        few = f"{row.short:,} epochs only: fewer than in the paper." if row.short else ""
        lines.append([*cells, f"{row.seconds:,.1f}", f"{len(row.lines)}{remark(few)}"])
    return _table([*headings, "seconds", "seeds"], 5, lines)


def _verdict(row: Row) -> str:
    return f"**{row.verdict}**" if row.verdict.startswith("below") else row.verdict


def _table(headings: Sequence[str], words: int, lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first columns are words and whose others are numbers."""
    rule = ["---"] * words + ["---:"] * (len(headings) - words)
    return "\n".join(
        "| " + " | ".join(_safe(cell) for cell in line) + " |" for line in [headings, rule, *lines]
    )


def _safe(text: str) -> str:
    """Escape names from a file that others made, which may hold anything."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return html.escape(shown, quote=False).replace("|", "\\|")


def check_own(path: Path) -> None:
    """Refuse to replace a file that ``reproduce`` did not make."""
    if not path.exists():
        return
    try:
        made = path.read_text(encoding="utf-8").startswith(MADE)
    except (OSError, ValueError):
        made = False
    if not made:
        raise UserError(f"{path} was not made by nscaching reproduce; choose another {flag('out')}")
