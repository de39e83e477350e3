"""Sizes of the cache: N1 entities kept for a key, N2 fresh candidates in a refresh."""

import statistics
from collections.abc import Callable
from typing import Literal

from nscaching.errors import UserError, flag
from nscaching.paper.figures._drawing import Line, Page, Panel
from nscaching.paper.figures._logs import Log, grouped, labels, note_differences, shown, shown_split
from nscaching.runs.folder import Record

Size = Literal["n1", "n2"]
OTHER: dict[Size, Size] = {"n1": "n2", "n2": "n1"}
NOT_TOLD = {"seed", "n1", "n2"}  # settings in which the points of one line may differ


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a row of panels for each size."""
    made, logs = [], shown(logs, _lacks_cache, notes)
    for (model, data), group in grouped(logs, lambda log: (log.model, log.data)).items():
        note_differences(group, {"n1", "n2"}, notes)
        split, word = shown_split(group, notes)
        panels, left = [], set(group)
        for size in OTHER:
            if runs := _sweep(size, group):
                panels += _panels(size, runs, split, word)
                left -= set(runs)
            else:
                notes.append(f"no panels of {size.upper()}: no two runs differ in --{size} alone")
        if not panels:
            names = ", ".join(log.where for log in group)
            either = f"{flag('n1')} alone or in {flag('n2')} alone"
            raise UserError(f"no two of these runs differ in {either}: {names}")
        for log in (log for log in group if log in left):
            pair = f"N1 = {log.config.cache.n1}, N2 = {log.config.cache.n2}"
            notes.append(f"{log.where} is not shown: {pair} is of no sweep")
        title, suffix = f"{model} on {data}", f"{model}-{data}".lower()
        made.append(Page(panels, 2, title, suffix, panel_height=3.3))
    return made


def _lacks_cache(log: Log) -> str:
    cure = "train with --sampler nscaching --n1 N --n2 N"
    return "" if log.has_cache else f"its sampler {log.config.sampler} has no cache; {cure}"


def _size(size: Size) -> Callable[[Log], int]:
    return lambda log: int(getattr(log.config.cache, size))


def _sweep(size: Size, logs: list[Log]) -> list[Log]:
    """Return the runs that differ in one size, the other being equal; most sizes win."""
    sweeps = grouped(logs, _size(OTHER[size])).values()
    longest = max(sweeps, key=lambda runs: len(grouped(runs, _size(size))))
    return sorted(longest, key=_size(size)) if len(grouped(longest, _size(size))) > 1 else []


def _panels(size: Size, runs: list[Log], split: str, word: str) -> list[Panel]:
    names = labels(runs, lambda log: f"{size.upper()} = {_size(size)(log)}")
    lines = [_line(log, names[log], log.rankings(split), split) for log in runs]
    best = _best_lines(size, runs, split)
    fixed = OTHER[size]
    title = (f"{fixed.upper()} = {_size(fixed)(runs[0])}",)
    return [
        Panel("epoch", f"{word} MRR", lines, title, ordered=True, legend=True),
        Panel(
            size.upper(), f"{word} MRR, best epoch", best, title, from_zero=True, values=True,
            legend=len(best) > 1,
        ),
    ]  # fmt: skip


def _line(log: Log, name: str, records: list[Record], split: str) -> Line:
    about = {"n1": log.config.cache.n1, "n2": log.config.cache.n2, "split": split}
    return log.line(name, records, {"epoch": "epoch", "value": "mrr"}, **about, measure="mrr")


def _best_lines(size: Size, runs: list[Log], split: str) -> list[Line]:
    series = grouped(
        runs, lambda log: tuple(v for k, v in log.settings.items() if k not in NOT_TOLD)
    )
    names = labels([group[0] for group in series.values()], lambda log: "best", NOT_TOLD)
    lines = []
    for group in series.values():
        points = []
        for seeds in grouped(group, _size(size)).values():
            rows = [_line(log, "", [chosen(log, split)], split).rows[0] for log in seeds]
            points.append(rows[0] | {"measure": "best_mrr"})
            if len(rows) > 1:
                mean = statistics.fmean(row["value"] for row in rows)
                points[-1] |= {"run": f"mean of {len(rows)}", "epoch": "", "value": mean}
        lines.append(Line(names[group[0]], points, size, "value"))
    return lines


def chosen(log: Log, split: str) -> Record:
    valid = {record["epoch"]: record["mrr"] for record in log.rankings("valid")}
    return max(log.rankings(split), key=lambda record: valid.get(record["epoch"], -1.0))
