"""Sizes of the cache: N1 entities kept for a key, N2 fresh candidates in a refresh."""

import statistics
from typing import Literal

from nscaching.errors import UserError, flag
from nscaching.paper.figures._logs import (
    Log,
    grouped,
    labels,
    note_differences,
    ranked_split,
    same_settings,
    shown,
)
from nscaching.paper.figures._pages import Line, Page, Panel, Row
from nscaching.runs.folder import Record

Size = Literal["n1", "n2"]
OTHER: dict[Size, Size] = {"n1": "n2", "n2": "n1"}
NOT_TOLD = {"seed", "n1", "n2"}
"""Settings in which the points of one line may differ."""


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a row of panels for each size."""
    made, logs = [], shown(logs, _lacks_cache, notes)
    for (model, data), group in grouped(logs, lambda log: (log.model, log.data)).items():
        note_differences(group, {"n1", "n2"}, notes)
        split, word = ranked_split(group, notes)
        sweeps = {size: _sweep(size, group) for size in OTHER}
        panels = []
        for size, runs in sweeps.items():
            if runs:
                panels += _panels(size, runs, split, word)
            else:
                notes.append(f"no panels of {size.upper()}: no two runs differ in --{size} alone")
        if not panels:
            names = ", ".join(log.where for log in group)
            either = f"{flag('n1')} alone or in {flag('n2')} alone"
            raise UserError(f"no two of these runs differ in {either}: {names}")
        swept = {log for runs in sweeps.values() for log in runs}
        notes += [
            f"{log.where} is not shown: N1 = {log.config.cache.n1}, "
            f"N2 = {log.config.cache.n2} is of no sweep"
            for log in group
            if log not in swept
        ]
        title, suffix = f"{model} on {data}", f"{model}-{data}".lower()
        made.append(Page(panels, 2, title, suffix, panel_height=3.3))
    return made


def _lacks_cache(log: Log) -> str:
    cure = "train with --sampler nscaching --n1 N --n2 N"
    return "" if log.has_cache else f"its sampler {log.config.sampler} has no cache; {cure}"


def _by_size(size: Size, logs: list[Log]) -> dict[int, list[Log]]:
    return grouped(logs, lambda log: getattr(log.config.cache, size))


def _sweep(size: Size, logs: list[Log]) -> list[Log]:
    """Return the runs that differ in one size, the other being equal; most sizes win."""
    sweeps = _by_size(OTHER[size], logs).values()
    longest = max(sweeps, key=lambda runs: len(_by_size(size, runs)))
    by_size = _by_size(size, longest)
    return [log for n in sorted(by_size) for log in by_size[n]] if len(by_size) > 1 else []


def _panels(size: Size, runs: list[Log], split: str, word: str) -> list[Panel]:
    """Return two panels of a sweep: MRR by epoch, and the MRR of the best epoch by size."""
    names = labels(runs, lambda log: f"{size.upper()} = {getattr(log.config.cache, size)}")
    lines = [
        Line(names[log], _points(log, log.rankings(split), split), "epoch", "value") for log in runs
    ]
    best = _best_lines(size, runs, split)
    fixed = OTHER[size]
    title = (f"{fixed.upper()} = {getattr(runs[0].config.cache, fixed)}",)
    return [
        Panel("epoch", f"{word} MRR", lines, title, ordered=True, legend=True),
        Panel(
            size.upper(), f"{word} MRR, best epoch", best, title, from_zero=True, values=True,
            legend=len(best) > 1,
        ),
    ]  # fmt: skip


def _best_lines(size: Size, runs: list[Log], split: str) -> list[Line]:
    """Return a line for each choice of the other settings, the mean of its seeds."""
    series = list(grouped(runs, lambda log: same_settings(log, NOT_TOLD)).values())
    names = labels([log for log, *_ in series], lambda log: "best", NOT_TOLD)
    lines = []
    for group in series:
        points = [_best(logs, split) for logs in _by_size(size, group).values()]
        lines.append(Line(names[group[0]], points, size, "value"))
    return lines


def _points(log: Log, records: list[Record], split: str) -> list[Row]:
    about = {"n1": log.config.cache.n1, "n2": log.config.cache.n2, "split": split}
    return log.points(records, {"epoch": "epoch", "value": "mrr"}, **about, measure="mrr")


def _best(logs: list[Log], split: str) -> Row:
    """Return the MRR of the epoch that validation chooses; of several runs, the mean."""
    rows = [row for log in logs for row in _points(log, [_chosen(log, split)], split)]
    best = rows[0] | {"measure": "best_mrr"}
    if len(rows) > 1:
        mean = statistics.fmean(row["value"] for row in rows)
        best |= {"run": f"mean of {len(rows)}", "epoch": "", "value": mean}
    return best


def _chosen(log: Log, split: str) -> Record:
    valid = {record["epoch"]: record["mrr"] for record in log.rankings("valid")}
    return max(log.rankings(split), key=lambda record: valid.get(record["epoch"], -1.0))
