"""Curves of a training by time or by epoch: convergence, strategies of the cache, gradients."""

import statistics

from nscaching.data import datasets
from nscaching.errors import UserError
from nscaching.paper.figures._drawing import Line, Page, Panel, evenly
from nscaching.paper.figures._logs import Log, grouped, labels, note_differences, shown_split
from nscaching.paper.published import TABLES, place

RANKED = {"mrr": "MRR", "hits@10": "Hit@10"}
LONG = 2.0  # seconds
SPREAD = 30  # times are drawn on logarithmic axes where those of a panel differ by more than this
# Measure of an epoch → the words beside its axis, and the flag that records it.
EXPLORED = {
    "repeat_ratio": ("repeat ratio RR\n(share of negatives)", "--probe-repeats 20"),
    "nonzero_loss": ("non-zero-loss ratio NZL\n(share of triples)", ""),
    "changed_elements": ("changed elements CE\n(entities of a cache row)", "--probe-changes"),
}
NORM = "gradient_norm"
MOST_COLUMNS = 3  # of panels of gradients


def in_order(logs: list[Log]) -> list[Log]:
    """Return logs by model, data, sampler and start, so that a line looks the same everywhere."""
    models = TABLES["link-prediction"].models
    titles = [known.title for known in datasets.KNOWN.values()]

    def key(log: Log) -> tuple[object, ...]:
        return place(log.model, models), place(log.data, titles), log.config.sampler, log.start

    return sorted(logs, key=key)


def by_sampler(logs: list[Log]) -> dict[Log, str]:
    starts = any(log.config.pretrain for log in logs)
    return labels(logs, lambda log: f"{log.sampler}, {log.start}" if starts else log.sampler)


def convergence(logs: list[Log], notes: list[str]) -> list[Page]:
    """Draw MRR and Hit@10 against the time of training: a page for each scoring function.

    It has a row of panels for each metric and a column for each data set.
    """
    notes += [note for log in logs if (note := _compiling(log))]
    models = grouped(in_order(logs), lambda log: log.model)
    return [_by_time(model, group, notes) for model, group in models.items()]


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


def _by_time(model: str, logs: list[Log], notes: list[str]) -> Page:
    split, word = shown_split(logs, notes)
    names = by_sampler(logs)
    columns = grouped(logs, lambda log: log.data)
    # One kind of axis for a page: panels side by side are read together.
    log_x = False
    for group in columns.values():
        times = [r["trained_seconds"] for log in group for r in evenly(log.rankings(split))]
        log_x |= max(times) > SPREAD * max(min(times), 1e-9)
    pretrained = any(log.config.pretrain for log in logs)
    seconds = "seconds of training" + "\n(pretraining apart)" * pretrained
    panels = []
    for i, (measure, heading) in enumerate(RANKED.items()):
        shown = {"epoch": "epoch", "seconds": "trained_seconds", "value": measure}
        about = {"split": split, "measure": measure}
        for j, (data, group) in enumerate(columns.items()):
            lines = [log.line(names[log], log.rankings(split), shown, **about) for log in group]
            title = () if i and len(columns) > 1 else (data,)
            x_label = seconds if i or len(columns) == 1 else ""
            panels.append(Panel(x_label, "" if j else f"{word} {heading}", lines, title, log_x))
    return Page(panels, max(2, len(columns)), model, model.lower())


def strategies(logs: list[Log], notes: list[str]) -> list[Page]:
    """Draw what strategies of drawing from the cache and of refreshing it find, how they explore.

    A page for each scoring function and data set, with a panel for each measure: RR and CE tell
    how much is explored, NZL how many of the drawn negatives still teach something.
    """
    made = []
    for (model, data), group in grouped(logs, lambda log: (log.model, log.data)).items():
        note_differences([log for log in group if log.has_cache], {"draw", "refresh"}, notes)
        panels = _strategy_panels(group, notes)
        columns = 2 if len(panels) == 4 else len(panels)
        made.append(Page(panels, columns, f"{model} on {data}", f"{model}-{data}".lower()))
    return made


def _strategy_panels(logs: list[Log], notes: list[str]) -> list[Panel]:
    names, panels = labels(logs, _strategy), []
    if any(log.rankings("valid") or log.rankings("test") for log in logs):
        split, word = shown_split(logs, notes)
        lines = [_strategy_line(log, names[log], "mrr", split) for log in logs]
        panels.append(Panel("epoch", f"{word} MRR", lines))
    else:
        notes.append("no panel of MRR: no run ranked while training (--validate-every N)")
    for measure, (label, flag) in EXPLORED.items():
        lines = [_strategy_line(log, names[log], measure) for log in logs if log.epochs(measure)]
        # Runs without a cache have no changed elements to record.
        able = [log for log in logs if measure != "changed_elements" or log.has_cache]
        lacking = [log.where for log in able if not log.epochs(measure)]
        if lines:
            panels.append(Panel("epoch", label, lines, from_zero=True))
            notes += [f"{run} has no {measure}: nscaching train {flag}" for run in lacking]
        elif flag:
            notes.append(f"no panel of {measure}: no run recorded it (nscaching train {flag})")
    if not panels:
        raise UserError(f"{logs[0].where}: no epoch is recorded yet")
    return panels


def _strategy(log: Log) -> str:
    cache = log.config.cache
    return f"{cache.draw} draw, {cache.refresh} refresh" if log.has_cache else log.sampler


def _strategy_line(log: Log, name: str, measure: str, split: str = "") -> Line:
    cache = log.config.cache
    draw, refresh = (cache.draw, cache.refresh) if log.has_cache else ("", "")
    about = {"draw": draw, "refresh": refresh, "split": split, "measure": measure}
    records = log.rankings(split) if split else log.epochs(measure)
    return log.line(name, records, {"epoch": "epoch", "value": measure}, **about)


def gradients(logs: list[Log], _notes: list[str]) -> list[Page]:
    """Draw the mean norm of a mini-batch's gradient in each epoch: does it vanish?

    One page with a panel for each scoring function and data set.
    """
    for log in logs:
        if not log.epochs(NORM):
            raise UserError(f"{log.where}: no {NORM} yet; nscaching train records it each epoch")
    names = by_sampler(logs)
    panels: list[Panel] = []
    for (model, data), group in grouped(in_order(logs), lambda log: (log.model, log.data)).items():
        columns = {"epoch": "epoch", NORM: NORM}
        lines = [log.line(names[log], log.epochs(NORM), columns) for log in group]
        label = "" if len(panels) % MOST_COLUMNS else "mean ℓ2 norm of a batch's gradient"
        panels.append(Panel("epoch", label, lines, (f"{model} on {data}",), log_y=True))
    return [Page(panels, min(len(panels), MOST_COLUMNS), panel_height=3.2)]
