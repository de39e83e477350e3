"""Strategies of drawing from the cache and of refreshing it: what they find, and how they explore.

RR and CE tell how much is explored, NZL how much of what is drawn still teaches something.
"""

from __future__ import annotations

from nscaching.errors import UserError
from nscaching.paper.figures._logs import Log, compare, grouped, labels, traced_split
from nscaching.paper.figures._pages import Line, Page, Panel, Row, evenly

__all__ = ["pages"]

# Figure of an epoch → the words beside its axis, and the flag that records it.
MEASURES = {
    "repeat_ratio": ("repeat ratio RR\n(share of negatives)", "--probe-repeats 20"),
    "nonzero_loss": ("non-zero-loss ratio NZL\n(share of triples)", ""),
    "changed_elements": ("changed elements CE\n(entities of a cache row)", "--probe-changes"),
}


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a panel for each measure."""
    groups = grouped(logs, lambda log: (log.model, log.data))
    made = []
    for (model, data), group in groups.items():
        suffix = f"{model}-{data}".lower() if len(groups) > 1 else ""
        cached = [log for log in group if log.config.sampler == "nscaching"]
        compare(cached, {"draw", "refresh"}, notes)
        panels = _panels(group, notes)
        columns = 2 if len(panels) == 4 else len(panels)
        made.append(Page(panels, columns, f"{model} on {data}", suffix))
    return made


def _panels(logs: list[Log], notes: list[str]) -> list[Panel]:
    names, panels = labels(logs, [_name(log) for log in logs]), []
    if any(log.rankings("valid") or log.rankings("test") for log in logs):
        split = traced_split(logs, notes)
        lines = [
            Line(name, _rows(log, "mrr", split), "epoch", "value")
            for log, name in zip(logs, names, strict=True)
        ]
        what = "test" if split == "test" else "validation"
        panels.append(Panel("epoch", f"{what} MRR", lines))
    else:
        notes.append("no panel of MRR: no run ranked while training (--validate-every N)")
    for measure, (label, flag) in MEASURES.items():
        found = [(log, name) for log, name in zip(logs, names, strict=True) if log.epochs(measure)]
        lines = [Line(name, _rows(log, measure), "epoch", "value") for log, name in found]
        lacking = [log.where for log in logs if _may_have(log, measure) and not log.epochs(measure)]
        if lines:
            panels.append(Panel("epoch", label, lines, from_zero=True))
            notes += [f"{run} has no {measure}: nscaching train {flag}" for run in lacking]
        elif flag:
            notes.append(f"no panel of {measure}: no run recorded it (nscaching train {flag})")
    if not panels:
        raise UserError(f"{logs[0].where}: no epoch is recorded yet")
    return panels


def _may_have(log: Log, measure: str) -> bool:
    return measure != "changed_elements" or log.config.sampler == "nscaching"


def _name(log: Log) -> str:
    if log.config.sampler != "nscaching":
        return log.sampler
    return f"{log.config.draw} draw, {log.config.refresh} refresh"


def _rows(log: Log, measure: str, split: str = "") -> list[Row]:
    cached = log.config.sampler == "nscaching"
    strategy = {"draw": log.config.draw, "refresh": log.config.refresh}
    about = {**log.about(), **(strategy if cached else dict.fromkeys(strategy, ""))}
    records = log.rankings(split) if split else log.epochs(measure)
    return [
        about
        | {"split": split, "measure": measure, "epoch": record["epoch"], "value": record[measure]}
        for record in evenly(records)
    ]
