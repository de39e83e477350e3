"""Sizes of the cache: N1 entities kept for a key, N2 fresh candidates in a refresh."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

from nscaching.errors import UserError, flag
from nscaching.paper.figures._logs import Log, alike, compare, grouped, labels, shown, traced_split
from nscaching.paper.figures._pages import Line, Page, Panel, Row, evenly
from nscaching.runs.folder import Record

__all__ = ["pages"]


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a row of panels for each size."""
    logs = shown(logs, _lacks_cache, notes)
    groups = grouped(logs, lambda log: (log.model, log.data))
    made = []
    for (model, data), group in groups.items():
        compare(group, {"n1", "n2"}, notes)
        split = traced_split(group, notes)
        sweeps = {"n1": _sweep("n1", "n2", group), "n2": _sweep("n2", "n1", group)}
        panels = [p for size, runs in sweeps.items() for p in _panels(size, runs, split, notes)]
        if not panels:
            runs = ", ".join(log.where for log in group)
            raise UserError(
                f"no two of these runs differ in {flag('n1')} alone or in {flag('n2')} "
                f"alone: {runs}"
            )
        swept = {id(log) for runs in sweeps.values() for log in runs}
        notes += [
            f"{log.where} is not shown: N1 = {log.config.n1}, N2 = {log.config.n2} is of no sweep"
            for log in group
            if id(log) not in swept
        ]
        suffix = f"{model}-{data}".lower() if len(groups) > 1 else ""
        made.append(Page(panels, 2, f"{model} on {data}", suffix, panel_height=3.3))
    return made


def _lacks_cache(log: Log) -> str:
    if log.config.sampler == "nscaching":
        return ""
    cure = "train with --sampler nscaching --n1 N --n2 N"
    return f"its sampler {log.config.sampler} has no cache; {cure}"


def _sweep(size: str, fixed: str, logs: list[Log]) -> list[Log]:
    """Return the runs that differ in one size, the other being equal; most sizes win."""
    sweeps = [sorted(group, key=_value(size)) for group in grouped(logs, _value(fixed)).values()]
    most = max(sweeps, key=lambda runs: len(grouped(runs, _value(size))))
    return most if len(grouped(most, _value(size))) > 1 else []


def _panels(size: str, runs: list[Log], split: str, notes: list[str]) -> list[Panel]:
    """Return two panels of a sweep: MRR by epoch, and that of the best epoch by size."""
    fixed = "n2" if size == "n1" else "n1"
    if not runs:
        notes.append(f"no panels of {size.upper()}: no two runs differ in --{size} alone")
        return []
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
    best = _best_lines(size, runs, split)
    what = "test MRR" if split == "test" else "validation MRR"
    title = (f"{fixed.upper()} = {getattr(runs[0].config, fixed)}",)
    return [
        Panel("epoch", what, lines, title, ordered=True, legend=True),
        Panel(
            size.upper(), f"{what}, best epoch", best, title, from_zero=True, values=True,
            legend=len(best) > 1,
        ),
    ]  # fmt: skip


def _best_lines(size: str, runs: list[Log], split: str) -> list[Line]:
    """Return a line for each choice of the other settings, the mean of its seeds."""
    series = list(grouped(runs, lambda log: alike(log, {"n1", "n2"})).values())
    # What tells them apart is neither a size nor a seed.
    same: dict[str, Any] = {"seed": 0, "n1": 1, "n2": 1}
    firsts = [
        dataclasses.replace(log, config=dataclasses.replace(log.config, **same))
        for log, *_ in series
    ]
    points = [
        [_best(seeds, split) for seeds in grouped(group, _value(size)).values()] for group in series
    ]
    names = labels(firsts, ["best"] * len(series))
    return [Line(name, rows, size, "value") for name, rows in zip(names, points, strict=True)]


def _value(size: str) -> Callable[[Log], int]:
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
