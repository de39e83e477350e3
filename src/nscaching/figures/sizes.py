"""Sizes of the cache: N1 entities kept for a key, N2 fresh candidates in a refresh."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Literal

from nscaching.errors import UserError
from nscaching.figures._logs import Log, compare, grouped, labels, traced_split
from nscaching.figures._pages import Line, Page, Panel, Row, evenly
from nscaching.trainer import Record

__all__ = ["pages"]

Size = Literal["n1", "n2"]


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a row of panels for each size."""
    for log in logs:
        if log.config.sampler != "nscaching":
            raise UserError(
                f"{log.where}: its sampler {log.config.sampler} has no cache; "
                "train with --sampler nscaching --n1 N --n2 N"
            )
    split = traced_split(logs, notes)
    groups = grouped(logs, lambda log: (log.model, log.data))
    made = []
    for (model, data), group in groups.items():
        compare(group, {"n1", "n2"}, notes)
        panels = _panels("n1", "n2", group, split, notes) + _panels("n2", "n1", group, split, notes)
        if not panels:
            runs = ", ".join(log.where for log in group)
            raise UserError(f"no two of these runs differ in --n1 alone or in --n2 alone: {runs}")
        suffix = f"{model}-{data}".lower() if len(groups) > 1 else ""
        made.append(Page(panels, 2, f"{model} on {data}", suffix, panel_height=3.3))
    return made


def _panels(size: Size, fixed: Size, logs: list[Log], split: str, notes: list[str]) -> list[Panel]:
    """Return two panels of the runs that differ in one size alone; most sizes of it win."""
    sweeps = [
        grouped(sorted(group, key=lambda log: getattr(log.config, size)), _value(size))
        for group in grouped(logs, _value(fixed)).values()
    ]
    sweep = max(sweeps, key=len)
    if len(sweep) < 2:
        notes.append(f"no panels of {size.upper()}: no two runs differ in --{size} alone")
        return []
    runs = [log for group in sweep.values() for log in group]
    names = labels(runs, [f"{size.upper()} = {getattr(log.config, size)}" for log in runs])
    lines = [
        Line(
            name,
            [_row(log, "mrr", split, r) for r in evenly(log.rankings(split))],
            "epoch",
            "value",
        )
        for log, name in zip(runs, names, strict=True)
    ]
    best = Line("best", [_best(group, split) for group in sweep.values()], size, "value")
    what = "test MRR" if split == "test" else "validation MRR"
    title = (f"{fixed.upper()} = {getattr(runs[0].config, fixed)}",)
    return [
        Panel("epoch", what, lines, title, ordered=True, legend=True),
        Panel(size.upper(), f"{what}, best epoch", [best], title, from_zero=True, values=True),
    ]


def _value(size: Size) -> Callable[[Log], int]:
    return lambda log: int(getattr(log.config, size))


def _row(log: Log, measure: str, split: str, record: Record) -> Row:
    sizes = {"n1": log.config.n1, "n2": log.config.n2}
    point = {"epoch": record["epoch"], "value": record["mrr"]}
    return {**log.about(), **sizes, "split": split, "measure": measure, **point}


def _best(logs: list[Log], split: str) -> Row:
    """Return the MRR of the epoch that validation chooses; of several runs, the mean."""
    rows = [_row(log, "best_mrr", split, _chosen(log, split)) for log in logs]
    if len(rows) == 1:
        return rows[0]
    mean = statistics.fmean(row["value"] for row in rows)
    return rows[0] | {"run": f"mean of {len(rows)}", "epoch": "", "value": mean}


def _chosen(log: Log, split: str) -> Record:
    valid = {record["epoch"]: record["mrr"] for record in log.rankings("valid")}
    return max(log.rankings(split), key=lambda record: valid.get(record["epoch"], -1.0))
