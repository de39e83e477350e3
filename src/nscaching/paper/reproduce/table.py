"""Results as a table: our values, the paper's and the differences, and the Markdown page."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.paper.published import MISPRINTS, Measure, PaperTable, paper_epochs, place
from nscaching.paper.reproduce.plan import GENERATOR, PROTOCOLS, STARTS_FROM, Cell, Training
from nscaching.paper.reproduce.results import Line, Result, Results
from nscaching.runs import escaping

Summary = dict[str, Any]
"""How often nscaching's rows of one kind are at or above the paper and our own Bernoulli."""

FAR_BELOW = 0.03
# The order of rows; what is not named comes last, by name.
SAMPLERS = ("pretrained", "bernoulli", "kbgan", "nscaching", "igan")
STARTS = ("", "scratch", "pretrain")
SCRATCH = ("nscaching", "scratch")
TEMPLATE = Path(__file__).with_name("table.md")
MADE = "<!-- Made by nscaching reproduce"


@dataclass(frozen=True)
class Figure:
    """One measure of a row, rounded as the paper prints it."""

    measure: Measure
    ours: float
    spread: float | None  # standard deviation over the seeds, where there are several
    paper: float | None
    difference: float | None
    note: str  # what is wrong with the paper's value, which is not compared with then
    share_below: float  # of the paper's value; 0: our value is at or above, or alone

    def __str__(self) -> str:
        ours = self.measure.text(self.ours)
        return ours if self.spread is None else f"{ours} ± {self.measure.text(self.spread)}"

    @property
    def papers(self) -> str:
        return self.measure.text(self.paper)


@dataclass(frozen=True)
class Row:
    """All seeds of one cell."""

    cell: Cell
    lines: dict[int, Line]  # by seed, ascending
    figures: list[Figure]
    seconds: float  # of training, mean over the seeds
    short: int  # epochs, where they are fewer than the paper's; else 0

    @property
    def first(self) -> Figure:
        return self.figures[0]

    @property
    def few(self) -> str:
        return f"{self.short:,} epochs only: fewer than in the paper." if self.short else ""

    @property
    def verdict(self) -> str:
        if self.first.difference is None:
            return "–"
        if not self.first.share_below:
            return "above" if self.first.difference else "equal"
        return f"below by {self.first.share_below:.1%}"

    def to_dict(self) -> dict[str, Any]:
        names = ("ours", "spread", "paper", "difference", "note")
        return {
            **self.cell._asdict(),
            "seeds": list(self.lines),
            "figures": {
                figure.measure.name: {name: getattr(figure, name) for name in names}
                for figure in self.figures
            },
            "seconds": self.seconds,
            "short": self.short,
            "verdict": self.verdict,
        }


def rows(results: Results, wanted: Sequence[Training] = ()) -> list[Row]:
    """Return a row for each cell that was trained, in the paper's order.

    A row has one choice of settings: those that are wanted, or else the latest. A training for
    another table is shown where this table has a place for it.
    """
    table = results.table
    preferred = {(training.cell, training.fingerprint) for training in wanted}
    own = [result.cell for result in results.list if result.file == results.path]
    own += [training.cell for training in wanted]
    shown = {
        *itertools.product(table.data, table.models),
        *(cell[:2] for cell in own if cell.sampler not in STARTS_FROM),
    }
    groups: dict[Cell, list[Result]] = {}
    for result in results.counted:
        if result.cell.sampler != GENERATOR and result.cell[:2] in shown:
            groups.setdefault(result.cell, []).append(result)
    made = []
    for cell in sorted(groups, key=lambda cell: _place(table, cell)):
        group = groups[cell]
        candidates = [r for r in group if (cell, r.settings) in preferred] or group
        settings = candidates[-1].settings
        lines = {r.line["seed"]: r.line for r in group if r.settings == settings}
        made.append(_row(table, cell, dict(sorted(lines.items()))))
    return made


def _row(table: PaperTable, cell: Cell, lines: dict[int, Line]) -> Row:
    figures, published = [], cell[:4]
    for measure in table.measures:
        values = [line["test"][measure.name] * measure.scale for line in lines.values()]
        ours = round(statistics.mean(values), measure.digits)
        spread = round(statistics.stdev(values), measure.digits) if len(lines) > 1 else None
        paper = table.published.get(published, {}).get(measure.name)
        note = MISPRINTS.get((published, measure.name), "")
        difference = None if paper is None or note else round(ours - paper, measure.digits)
        below = max(0.0, -difference / paper) if difference and paper else 0.0
        figures.append(Figure(measure, ours, spread, paper, difference, note, below))
    epochs: int = min(line["settings"]["epochs"] for line in lines.values())
    short = cell.sampler not in STARTS_FROM and epochs < paper_epochs(cell.sampler)
    seconds = statistics.fmean(line["train_seconds"] for line in lines.values())
    return Row(cell, lines, figures, seconds, epochs if short else 0)


def _place(table: PaperTable, cell: Cell) -> list[tuple[int, str]]:
    orders = (table.data, table.models, SAMPLERS, STARTS, list(PROTOCOLS))
    return [place(name, order) for name, order in zip(cell, orders, strict=True)]


def summaries(table: PaperTable, found: Sequence[Row]) -> list[Summary]:
    mine = [row for row in found if row.cell.sampler == "nscaching"]
    mine.sort(key=lambda row: _place(table, row.cell)[3:])
    kinds = itertools.groupby(mine, key=lambda row: row.cell[3:])
    return [_summary(table, found, list(rows)) for _, rows in kinds]


def _summary(table: PaperTable, found: Sequence[Row], mine: list[Row]) -> Summary:
    kind = mine[0].cell
    compared = [row for row in mine if row.first.difference is not None]
    # Settings tuned for the cache may not suit Bernoulli: the better of its own two counts.
    rivals: dict[tuple[str, ...], float] = {}
    for row in found:
        if row.cell.sampler == "bernoulli" and row.cell.protocol in ("paper", kind.protocol):
            rivals[row.cell[:2]] = max(row.first.ours, rivals.get(row.cell[:2], 0.0))
    contests = [row.first.ours > rivals[row.cell[:2]] for row in mine if row.cell[:2] in rivals]
    return {
        **{name: getattr(kind, name) for name in ("sampler", "start", "protocol")},
        "in_paper": sum(row[2:] == kind[2:4] for row in table.published),
        "compared": len(compared),
        "at_or_above": sum(not row.first.share_below for row in compared),
        "far_below": [
            f"{row.cell.model} on {row.cell.data} ({row.first.share_below:.1%})"
            for row in compared
            if row.first.share_below > FAR_BELOW
        ],
        "against_bernoulli": len(contests),
        "above_bernoulli": sum(contests),
        "seconds": sum(row.seconds for row in mine),
    }


def sentence(summary: Summary) -> str:
    start, protocol = summary["start"], summary["protocol"]
    return (
        f"{summary['sampler']}, {start}, {PROTOCOLS.get(protocol, protocol)}: "
        f"at or above the paper in {summary['at_or_above']} of {summary['compared']} cells "
        f"(the paper has {summary['in_paper']}); "
        f"more than 3% below: {'; '.join(summary['far_below']) or 'none'}; above our own "
        f"Bernoulli in {summary['above_bernoulli']} of {summary['against_bernoulli']}; "
        f"{escaping.duration(summary['seconds'])} of training, each cell once"
    )


def markdown(results: Results, rows: Sequence[Row], summaries: Sequence[Summary]) -> str:
    """Return the page of the table; names from a file that others made are escaped."""
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: the filter ``name`` escapes.
    environment = Environment(  # noqa: S701
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["name"] = escaping.markdown
    by_data = itertools.groupby(rows, key=lambda row: row.cell.data)
    notes = [note for row in rows for note in (*(f.note for f in row.figures), row.few) if note]
    machines = {
        f"{line['device']}, nscaching {line.get('nscaching')}, PyTorch {line.get('torch')}"
        for line in (result.line for result in results.list)
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        made=MADE,
        table=results.table,
        files=[path.name for path in results.files],
        protocols=PROTOCOLS,
        scratch={r.cell[:2]: r.first.papers for r in rows if r.cell[2:4] == SCRATCH},
        by_cell={row.cell: row for row in rows},
        by_data=by_data,
        summaries=map(sentence, summaries),
        notes=list(dict.fromkeys(notes)),
        left_out=results.notes,
        machines=sorted(machines),
    )
