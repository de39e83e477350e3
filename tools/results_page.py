"""Write the tables of docs/results.md anew from the lines of docs/results/*.jsonl.

python tools/results_page.py

Each table stands between a mark of its name and the next "end" mark; the text around stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nscaching.paper.published import TABLES, PaperTable
from nscaching.paper.reproduce import results
from nscaching.paper.reproduce.plan import Cell, plan
from nscaching.paper.reproduce.selection import Protocol, Selection
from nscaching.paper.reproduce.table import Row, rows

DOCS = Path(__file__).resolve().parents[1] / "docs"
SELECTION = Selection(samplers=("pretrained", "bernoulli", "kbgan", "nscaching"), validate_every=50)


class Results:
    """The results of a table, with the settings that the presets have now."""

    def __init__(self, table: PaperTable) -> None:
        self.table, self.results = table, results.Results(DOCS / "results", table)
        self.wanted = plan(table, SELECTION)
        self.list = rows(self.results, self.wanted)
        self.rows: dict[Cell, Row] = {row.cell: row for row in self.list}


Show = Callable[[Results, str, str], str]
"""What a data set and a model have in a column."""
Column = tuple[str, Show]
"""A heading, and the cells below it."""


def ours(sampler: str, start: str, protocol: Protocol) -> Show:
    """Show our value, and how far it is below the paper's where it is."""

    def show(results: Results, data: str, model: str) -> str:
        figure = results.rows[Cell(data, model, sampler, start, protocol)].first
        below = f" (**−{figure.share_below:.1%}**)" if figure.share_below else ""
        return f"{figure}{below}"

    return show


def papers(sampler: str, start: str = "") -> Show:
    """Show the paper's value."""
    return lambda results, data, model: (
        results.rows[Cell(data, model, sampler, start, "paper")].first.papers
    )


def best_epochs(results: Results, data: str, model: str) -> str:
    """Show the best epoch of each seed."""
    lines = results.rows[Cell(data, model, "nscaching", "scratch", "cache")].lines
    return ", ".join(str(line["best_epoch"]) for line in lines.values())


def seconds(results: Results, data: str, model: str) -> str:
    """Show the seconds of the seed that the GPU had most time for."""
    lines = results.rows[Cell(data, model, "nscaching", "scratch", "cache")].lines
    return f"{min(line['train_seconds'] for line in lines.values()):.0f}"


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
PAGE_TABLES: dict[str, tuple[str, Sequence[Column]]] = {
    "scratch": ("link-prediction", (*SCRATCH, ("best epochs", best_epochs), ("seconds", seconds))),
    "others": ("link-prediction", OTHERS),
    "classification": ("triplet-classification", SCRATCH),
}


def table(results: Results, columns: Sequence[Column]) -> str:
    """Return a row for each data set and model of the paper's table."""
    found = [["data", "model", *(heading for heading, _ in columns)]]
    found.append(["---", "---", *["---:"] * len(columns)])
    for data in results.table.data:
        for model in results.table.models:
            found.append([data, model, *(show(results, data, model) for _, show in columns)])
    return "\n".join(_line(cells) for cells in found)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def with_tables(page: str) -> str:
    """Return the page with the tables as the lines have them."""
    results = {name: Results(table) for name, table in TABLES.items()}
    for name, (paper_table, columns) in PAGE_TABLES.items():
        mark, end = f"<!-- table: {name} -->", "<!-- end -->"
        before, after = page.split(mark)
        _, after = after.split(end, 1)
        page = f"{before}{mark}\n\n{table(results[paper_table], columns)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    where = DOCS / "results.md"
    where.write_text(with_tables(where.read_text(encoding="utf-8")), encoding="utf-8")
