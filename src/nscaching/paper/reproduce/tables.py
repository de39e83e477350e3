"""Lines of results → rows: ours, the paper's, and the difference."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nscaching.cli.progress import duration
from nscaching.paper.published import misprint
from nscaching.paper.reproduce.cells import (
    EPOCHS,
    GENERATOR,
    OTHER_EPOCHS,
    PRETRAINED,
    STARTS_FROM,
    Training,
)
from nscaching.paper.reproduce.store import Line, Store, cell
from nscaching.paper.reproduce.task import Measure, Task

__all__ = ["PROTOCOLS", "Figure", "Row", "Summary", "rows", "summaries"]

PROTOCOLS = {"paper": "paper's protocol", "cache": "tuned for the cache"}
FAR_BELOW = 0.03
SAMPLERS = (PRETRAINED, "bernoulli", "kbgan", "nscaching", "igan")
STARTS = ("", "scratch", "pretrain")


@dataclass(frozen=True)
class Figure:
    """One measure of a row, rounded as the paper prints it."""

    measure: Measure
    ours: float
    paper: float | None
    note: str = ""
    """What is wrong with the paper's figure; it is not compared with then."""
    spread: float | None = None
    """Standard deviation over the seeds, where there are several."""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        if self.paper is None or self.note:
            return None
        return round(self.ours - self.paper, self.measure.digits)

    @property
    def share_below(self) -> float:
        """How far ours is below, as a share of the paper's; 0 where it is at or above, or alone."""
        if self.paper is None or self.difference is None:
            return 0.0
        loss = self.difference if self.measure.lower_is_better else -self.difference
        return max(0.0, loss / self.paper)


@dataclass(frozen=True)
class Row:
    """All seeds of one cell of the paper's table."""

    data: str
    model: str
    sampler: str
    start: str
    protocol: str
    seeds: tuple[int, ...]
    figures: tuple[Figure, ...]
    seconds: float
    """Of training, mean over the seeds."""
    short: int
    """Epochs, where they are fewer than the paper's; else 0."""

    @property
    def verdict(self) -> str:
        """What a reader looks for first."""
        first = self.figures[0]
        if first.difference is None:
            return "–"
        if not first.share_below:
            return "above" if first.difference else "equal"
        return f"below by {first.share_below:.1%}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        values = dataclasses.asdict(self)
        values["figures"] = {
            figure.measure.name: {
                "ours": figure.ours,
                "spread": figure.spread,
                "paper": figure.paper,
                "difference": figure.difference,
                "note": figure.note,
            }
            for figure in self.figures
        }
        return values | {"verdict": self.verdict}


def rows(store: Store, wanted: Iterable[Training] = ()) -> list[Row]:
    """Return a row for each cell that was trained, in the paper's order.

    Seeds of other settings do not mix: of a cell those that are wanted count, or else the latest.
    What was trained for another table is shown where this one has a place for it; what was trained
    on other data is left out.
    """
    wanted, task = list(wanted), store.task
    preferred = {(*training.cell[:-1], training.fingerprint) for training in wanted}
    shown = {(data, model) for data in task.data for model in task.models} | store.own
    shown |= {training.cell[:2] for training in wanted if training.cell.sampler not in STARTS_FROM}
    groups: dict[tuple[str, ...], dict[str, dict[int, Line]]] = {}
    for line, mark in store:
        *key, seed = cell(line)
        if line["sampler"] != GENERATOR and tuple(key[:2]) in shown and store.counts(line):
            by_mark = groups.setdefault(tuple(key), {})
            # At the end of both dictionaries, so that the last is the latest.
            seeds = by_mark.pop(mark, {})
            by_mark[mark] = seeds | {seed: line}
    made = []
    for row, by_mark in groups.items():
        chosen = [mark for mark in by_mark if (*row, mark) in preferred] or list(by_mark)
        made.append(_row(task, row, by_mark[chosen[-1]]))
    return sorted(made, key=lambda row: _place(task, row))


def _row(task: Task, key: Sequence[str], lines: dict[int, Line]) -> Row:
    data, model, sampler, start, protocol = key
    figures = []
    for measure in task.measures:
        values = [line["test"][measure.name] * measure.scale for line in lines.values()]
        row = (data, model, sampler, start)
        theirs = task.paper().get(row, {}).get(measure.name)
        ours = round(statistics.mean(values), measure.digits)
        spread = round(statistics.stdev(values), measure.digits) if len(values) > 1 else None
        figures.append(Figure(measure, ours, theirs, misprint(row, measure.name), spread))
    epochs = min(line["settings"]["epochs"] for line in lines.values())
    in_paper = 0 if sampler == PRETRAINED else EPOCHS.get(sampler, OTHER_EPOCHS)
    return Row(
        *(data, model, sampler, start, protocol),
        seeds=tuple(sorted(lines)),
        figures=tuple(figures),
        seconds=statistics.mean(line["train_seconds"] for line in lines.values()),
        short=epochs if epochs < in_paper else 0,
    )


def _place(task: Task, row: Row) -> tuple[int, ...]:
    def index(name: str, known: Sequence[str]) -> int:
        return known.index(name) if name in known else len(known)

    return (
        index(row.data, task.data),
        index(row.model, task.models),
        index(row.sampler, SAMPLERS),
        index(row.start, STARTS),
        index(row.protocol, list(PROTOCOLS)),
    )


@dataclass(frozen=True)
class Summary:
    """How often one kind of row is at or above the paper, and above our own Bernoulli."""

    sampler: str
    start: str
    protocol: str
    in_paper: int
    compared: int
    at_or_above: int
    far_below: tuple[str, ...]
    """Cells more than 3% below the paper."""
    against_bernoulli: int
    above_bernoulli: int
    seconds: float
    """Of training all its cells once."""

    def __str__(self) -> str:
        far = "; ".join(self.far_below) or "none"
        return (
            f"{self.sampler}, {self.start}, {PROTOCOLS.get(self.protocol, self.protocol)}: "
            f"at or above the paper in {self.at_or_above} of {self.compared} cells "
            f"(the paper has {self.in_paper}); more than 3% below: {far}; "
            f"above our own Bernoulli in {self.above_bernoulli} of {self.against_bernoulli}; "
            f"{duration(self.seconds)} of training, each cell once"
        )


def summaries(task: Task, found: Sequence[Row]) -> list[Summary]:
    """Return a summary for each kind of nscaching's rows."""
    kinds = {(r.start, r.protocol): None for r in found if r.sampler == "nscaching"}
    return [_summary(task, found, *kind) for kind in sorted(kinds, key=_kind_place)]


def _kind_place(kind: tuple[str, str]) -> tuple[int, bool]:
    return STARTS.index(kind[0]) if kind[0] in STARTS else len(STARTS), kind[1] != "paper"


def _summary(task: Task, found: Sequence[Row], start: str, protocol: str) -> Summary:
    mine = [r for r in found if (r.sampler, r.start, r.protocol) == ("nscaching", start, protocol)]
    compared = [row for row in mine if row.figures[0].difference is not None]
    # Settings tuned for the cache may not suit Bernoulli: the better of its own two counts.
    rivals: dict[tuple[str, str], float] = {}
    for row in found:
        if row.sampler == "bernoulli" and row.protocol in ("paper", protocol):
            key = row.data, row.model
            rivals[key] = max(row.figures[0].ours, rivals.get(key, 0.0))
    contests = [
        row.figures[0].ours > rivals[row.data, row.model]
        for row in mine
        if (row.data, row.model) in rivals
    ]
    return Summary(
        *("nscaching", start, protocol),
        in_paper=sum(row[2:] == ("nscaching", start) for row in task.paper()),
        compared=len(compared),
        at_or_above=sum(not row.figures[0].share_below for row in compared),
        far_below=tuple(
            f"{row.model} on {row.data} ({row.figures[0].share_below:.1%})"
            for row in compared
            if row.figures[0].share_below > FAR_BELOW
        ),
        against_bernoulli=len(contests),
        above_bernoulli=sum(contests),
        seconds=sum(row.seconds for row in mine),
    )
