"""Results to rows of a table: our value, the paper's, and the difference."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nscaching.paper.presets import Variant
from nscaching.paper.published import MISPRINTS, Measure, PaperTable
from nscaching.paper.reproduce.plan import (
    GENERATOR,
    PRETRAINED,
    PROTOCOLS,
    STARTS_FROM,
    Cell,
    Training,
    paper_epochs,
)
from nscaching.paper.reproduce.results import Line, Result, Results
from nscaching.runs.duration import duration

FAR_BELOW = 0.03
# The order of rows; what is not named comes last.
SAMPLERS = (PRETRAINED, "bernoulli", "kbgan", "nscaching", "igan")
STARTS = ("", "scratch", "pretrain")


@dataclass(frozen=True)
class Figure:
    """One measure of a row, rounded as the paper prints it."""

    measure: Measure
    ours: float
    spread: float | None
    """Standard deviation over the seeds, where there are several."""
    paper: float | None
    note: str
    """What is wrong with the paper's value, which is not compared with then."""

    def __str__(self) -> str:
        ours = self.measure.text(self.ours)
        return ours if self.spread is None else f"{ours} ± {self.measure.text(self.spread)}"

    @property
    def papers(self) -> str:
        """The paper's value, as the paper prints it."""
        return self.measure.text(self.paper)

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's."""
        if self.paper is None or self.note:
            return None
        return round(self.ours - self.paper, self.measure.digits)

    @property
    def signed(self) -> str:
        """The difference with its sign."""
        return self.measure.text(self.difference, "+")

    @property
    def share_below(self) -> float:
        """How far our value is below, as a share of the paper's; 0: at or above, or alone."""
        if self.paper is None or self.difference is None:
            return 0.0
        return max(0.0, -self.difference / self.paper)


@dataclass(frozen=True)
class Row:
    """All seeds of one cell."""

    cell: Cell
    lines: dict[int, Line]
    """By seed, ascending."""
    figures: tuple[Figure, ...]

    @property
    def first(self) -> Figure:
        """The measure that decides."""
        return self.figures[0]

    @property
    def seconds(self) -> float:
        """Seconds of training, mean over the seeds."""
        return statistics.fmean(line["train_seconds"] for line in self.lines.values())

    @property
    def short(self) -> int:
        """Epochs, where they are fewer than the paper's; else 0."""
        epochs: int = min(line["settings"]["epochs"] for line in self.lines.values())
        sampler = self.cell.sampler
        return epochs if sampler != PRETRAINED and epochs < paper_epochs(sampler) else 0

    @property
    def verdict(self) -> str:
        """How the row compares with the paper."""
        if self.first.difference is None:
            return "–"
        if not self.first.share_below:
            return "above" if self.first.difference else "equal"
        return f"below by {self.first.share_below:.1%}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
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


def rows(results: Results, wanted: Iterable[Training] = ()) -> list[Row]:
    """Return a row for each cell that was trained, in the paper's order.

    A row has one choice of settings: those that are wanted, or else the latest. A training for
    another table is shown where this table has a place for it.
    """
    wanted, table = list(wanted), results.table
    preferred = {(training.cell, training.fingerprint) for training in wanted}
    shown = {(data, model) for data in table.data for model in table.models}
    own = [result.cell for result in results.list if result.file == results.path]
    for cell in [*own, *(training.cell for training in wanted)]:
        if cell.sampler not in STARTS_FROM:
            shown.add((cell.data, cell.model))
    groups: dict[Cell, list[Result]] = {}
    for result in results.counted:
        cell = result.cell
        if cell.sampler != GENERATOR and (cell.data, cell.model) in shown:
            groups.setdefault(cell, []).append(result)
    made = []
    for cell, group in groups.items():
        candidates = [r for r in group if (cell, r.settings) in preferred] or group
        settings = candidates[-1].settings
        lines = {r.line["seed"]: r.line for r in group if r.settings == settings}
        made.append(_row(table, cell, dict(sorted(lines.items()))))
    return sorted(made, key=lambda row: _place(table, row.cell))


def _row(table: PaperTable, cell: Cell, lines: dict[int, Line]) -> Row:
    figures = []
    published = cell.data, cell.model, cell.sampler, cell.start
    for measure in table.measures:
        values = [line["test"][measure.name] * measure.scale for line in lines.values()]
        figures.append(
            Figure(
                measure,
                ours=round(statistics.mean(values), measure.digits),
                spread=round(statistics.stdev(values), measure.digits) if len(lines) > 1 else None,
                paper=table.published.get(published, {}).get(measure.name),
                note=MISPRINTS.get((published, measure.name), ""),
            )
        )
    return Row(cell, lines, tuple(figures))


def _place(table: PaperTable, cell: Cell) -> list[int]:
    orders = (table.data, table.models, SAMPLERS, STARTS, tuple(PROTOCOLS))
    return [
        order.index(name) if name in order else len(order)
        for name, order in zip(cell, orders, strict=True)
    ]


@dataclass(frozen=True)
class Summary:
    """How often nscaching's rows of one kind are at or above the paper and our own Bernoulli."""

    sampler: str
    start: str
    protocol: Variant
    in_paper: int
    compared: int
    at_or_above: int
    far_below: tuple[str, ...]
    """Cells more than 3% below the paper."""
    against_bernoulli: int
    above_bernoulli: int
    seconds: float
    """Seconds of training all cells once."""

    def __str__(self) -> str:
        far = "; ".join(self.far_below) or "none"
        return (
            f"{self.sampler}, {self.start}, {PROTOCOLS.get(self.protocol, self.protocol)}: "
            f"at or above the paper in {self.at_or_above} of {self.compared} cells "
            f"(the paper has {self.in_paper}); more than 3% below: {far}; "
            f"above our own Bernoulli in {self.above_bernoulli} of {self.against_bernoulli}; "
            f"{duration(self.seconds)} of training, each cell once"
        )


def summaries(table: PaperTable, found: Sequence[Row]) -> list[Summary]:
    """Return a summary for each kind (start and protocol) of nscaching's rows."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(found, key=lambda row: _place(table, row.cell)[3:]):
        if row.cell.sampler == "nscaching":
            kinds.setdefault((row.cell.start, row.cell.protocol), []).append(row)
    return [_summary(table, found, mine) for mine in kinds.values()]


def _summary(table: PaperTable, found: Sequence[Row], mine: Sequence[Row]) -> Summary:
    _, _, sampler, start, protocol = mine[0].cell
    compared = [row for row in mine if row.first.difference is not None]
    # Settings tuned for the cache may not suit Bernoulli: the better of its own two counts.
    rivals: dict[tuple[str, str], float] = {}
    for row in found:
        if row.cell.sampler == "bernoulli" and row.cell.protocol in ("paper", protocol):
            key = row.cell[:2]
            rivals[key] = max(row.first.ours, rivals.get(key, 0.0))
    contests = [row.first.ours > rivals[row.cell[:2]] for row in mine if row.cell[:2] in rivals]
    return Summary(
        *(sampler, start, protocol),
        in_paper=sum(row[2:] == (sampler, start) for row in table.published),
        compared=len(compared),
        at_or_above=sum(not row.first.share_below for row in compared),
        far_below=tuple(
            f"{row.cell.model} on {row.cell.data} ({row.first.share_below:.1%})"
            for row in compared
            if row.first.share_below > FAR_BELOW
        ),
        against_bernoulli=len(contests),
        above_bernoulli=sum(contests),
        seconds=sum(row.seconds for row in mine),
    )
