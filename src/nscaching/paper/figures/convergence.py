"""MRR and Hit@10 against the time of training: a page for each scoring function."""

import statistics

from nscaching.paper.figures._logs import Log, by_sampler, grouped, in_order, ranked_split
from nscaching.paper.figures._pages import Line, Page, Panel, evenly

MEASURES = {"mrr": "MRR", "hits@10": "Hit@10"}
LONG = 2.0  # seconds
SPREAD = 30  # times are drawn on logarithmic axes where those of a panel differ by more than this


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return pages with a row of panels for each metric and a column for each data set."""
    notes += [note for log in logs if (note := _compiling(log))]
    models = grouped(in_order(logs), lambda log: log.model)
    return [_page(model, group, notes) for model, group in models.items()]


def _compiling(log: Log) -> str:
    """Return a note where the first epoch took so long that it must have compiled kernels."""
    first, *others = [record["seconds"] for record in log.epochs("seconds")] or [0.0]
    usual = statistics.median(others) if others else first
    if first < max(LONG, SPREAD * usual):
        return ""
    return (
        f"{log.where}: its first epoch took {first:.0f} s and others {usual:.2g} s: it compiled "
        "kernels, which are kept; a training after it has truer times"
    )


def _page(model: str, logs: list[Log], notes: list[str]) -> Page:
    split, word = ranked_split(logs, notes)
    names = by_sampler(logs)
    columns = grouped(logs, lambda log: log.data)
    # One kind of axis for a page: panels side by side are read together.
    log_x = any(_spread(group, split) > SPREAD for group in columns.values())
    seconds = "seconds of training"
    if any(log.start == "pretrain" for log in logs):
        seconds += "\n(pretraining apart)"
    panels = []
    for i, (measure, heading) in enumerate(MEASURES.items()):
        shown = {"epoch": "epoch", "seconds": "trained_seconds", "value": measure}
        for j, (data, group) in enumerate(columns.items()):
            lines = []
            for log in group:
                rows = log.points(log.rankings(split), shown, split=split, measure=measure)
                lines.append(Line(names[log], rows, "seconds", "value"))
            title = () if i and len(columns) > 1 else (data,)
            x_label = seconds if i or len(columns) == 1 else ""
            panels.append(Panel(x_label, "" if j else f"{word} {heading}", lines, title, log_x))
    return Page(panels, max(2, len(columns)), model, model.lower())


def _spread(logs: list[Log], split: str) -> float:
    """Return the longest time of some runs as a multiple of the shortest."""
    seconds = [record["trained_seconds"] for log in logs for record in evenly(log.rankings(split))]
    return float(max(seconds) / max(min(seconds), 1e-9))
