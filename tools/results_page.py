"""Write the tables of docs/results.md anew from the lines of docs/results/*.jsonl.

python tools/results_page.py

Each table stands between a mark of its name and the next "end" mark; the text around stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nscaching.paper.reproduce.asked import Asked
from nscaching.paper.reproduce.cells import plan
from nscaching.paper.reproduce.markdown import mean, number
from nscaching.paper.reproduce.store import Line, Store, cell
from nscaching.paper.reproduce.tables import Row, rows
from nscaching.paper.reproduce.task import TASKS, Task

DOCS = Path(__file__).resolve().parents[1] / "docs"
ASKED = Asked(samplers=("pretrained", "bernoulli", "kbgan", "nscaching"), validate_every=50)

Key = tuple[str, str, str, str, str]
"""Data, model, sampler, start, protocol."""
Column = tuple[str, Callable[["Results", str, str], str]]
"""A heading, and what a data set and a model have below it."""


class Results:
    """What was trained for a table, with the settings that the presets have now."""

    def __init__(self, task: Task) -> None:
        self.task, self.store = task, Store(DOCS / "results", task)
        self.wanted = plan(task, ASKED)
        self.list = rows(self.store, self.wanted)
        self.rows: dict[Key, Row] = {
            (row.data, row.model, row.sampler, row.start, row.protocol): row for row in self.list
        }

    def lines(self, key: Key) -> list[Line]:
        """Return the trainings behind a row, by seed."""
        marks = {t.fingerprint for t in self.wanted if t.cell[:-1] == key}
        found: dict[int, Line] = {}
        for line, mark in self.store:
            *same, seed = cell(line)
            if mark in marks and tuple(same) == key:
                found[seed] = line
        return [found[seed] for seed in sorted(found)]


def ours(sampler: str, start: str, protocol: str) -> Callable[[Results, str, str], str]:
    """Show our figure, and how far it is below the paper's where it is."""

    def show(results: Results, data: str, model: str) -> str:
        figure = results.rows[data, model, sampler, start, protocol].figures[0]
        below = f" (**−{figure.share_below:.1%}**)" if figure.share_below else ""
        return mean(figure) + below

    return show


def papers(sampler: str, start: str = "") -> Callable[[Results, str, str], str]:
    """Show the paper's figure."""

    def show(results: Results, data: str, model: str) -> str:
        figure = results.rows[data, model, sampler, start, "paper"].figures[0]
        return number(figure, figure.paper)

    return show


def best_epochs(results: Results, data: str, model: str) -> str:
    """Show the best epoch of each seed."""
    lines = results.lines((data, model, "nscaching", "scratch", "cache"))
    return ", ".join(str(line["best_epoch"]) for line in lines)


def seconds(results: Results, data: str, model: str) -> str:
    """Show the seconds of the seed that the GPU had most time for."""
    lines = results.lines((data, model, "nscaching", "scratch", "cache"))
    return f"{min(line['train_seconds'] for line in lines):.0f}"


SCRATCH: tuple[Column, ...] = (
    ("nscaching, paper", papers("nscaching", "scratch")),
    ("ours, paper's protocol", ours("nscaching", "scratch", "paper")),
    ("ours, tuned for the cache", ours("nscaching", "scratch", "cache")),
    ("Bernoulli, paper", papers("bernoulli")),
    ("ours, paper's protocol", ours("bernoulli", "", "paper")),
    ("ours, the cache's settings", ours("bernoulli", "", "cache")),
)
OTHERS: tuple[Column, ...] = (
    ("KBGAN, scratch, paper", papers("kbgan", "scratch")),
    ("ours", ours("kbgan", "scratch", "paper")),
    ("KBGAN, pretrain, paper", papers("kbgan", "pretrain")),
    ("ours", ours("kbgan", "pretrain", "paper")),
    ("nscaching, pretrain, paper", papers("nscaching", "pretrain")),
    ("ours, paper's protocol", ours("nscaching", "pretrain", "paper")),
    ("ours, tuned for the cache", ours("nscaching", "pretrain", "cache")),
)
TABLES: dict[str, tuple[str, Sequence[Column]]] = {
    "scratch": ("link-prediction", (*SCRATCH, ("best epochs", best_epochs), ("seconds", seconds))),
    "others": ("link-prediction", OTHERS),
    "classification": ("triplet-classification", SCRATCH),
}


def table(results: Results, columns: Sequence[Column]) -> str:
    """Return a row for each data set and model of the paper's table."""
    found = [["data", "model", *(heading for heading, _ in columns)]]
    found.append(["---", "---", *["---:"] * len(columns)])
    for data in results.task.data:
        for model in results.task.models:
            found.append([data, model, *(show(results, data, model) for _, show in columns)])
    return "\n".join(_line(cells) for cells in found)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def with_tables(page: str) -> str:
    """Return the page with the tables as the lines have them."""
    results = {name: Results(task) for name, task in TASKS.items()}
    for name, (task, columns) in TABLES.items():
        mark, end = f"<!-- table: {name} -->", "<!-- end -->"
        before, after = page.split(mark)
        _, after = after.split(end, 1)
        page = f"{before}{mark}\n\n{table(results[task], columns)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    where = DOCS / "results.md"
    where.write_text(with_tables(where.read_text(encoding="utf-8")), encoding="utf-8")
