"""Strategies of drawing from the cache and of refreshing it: what they find, and how they explore.

RR and CE tell how much is explored, NZL how many of the drawn negatives still teach something.
"""

from nscaching.errors import UserError
from nscaching.paper.figures._logs import Log, grouped, labels, note_differences, ranked_split
from nscaching.paper.figures._pages import Line, Page, Panel

# Measure of an epoch → the words beside its axis, and the flag that records it.
MEASURES = {
    "repeat_ratio": ("repeat ratio RR\n(share of negatives)", "--probe-repeats 20"),
    "nonzero_loss": ("non-zero-loss ratio NZL\n(share of triples)", ""),
    "changed_elements": ("changed elements CE\n(entities of a cache row)", "--probe-changes"),
}


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return a page for each scoring function and data set, with a panel for each measure."""
    made = []
    for (model, data), group in grouped(logs, lambda log: (log.model, log.data)).items():
        note_differences([log for log in group if log.has_cache], {"draw", "refresh"}, notes)
        panels = _panels(group, notes)
        columns = 2 if len(panels) == 4 else len(panels)
        made.append(Page(panels, columns, f"{model} on {data}", f"{model}-{data}".lower()))
    return made


def _panels(logs: list[Log], notes: list[str]) -> list[Panel]:
    names, panels = labels(logs, _name), []
    if any(log.rankings("valid") or log.rankings("test") for log in logs):
        split, word = ranked_split(logs, notes)
        panels.append(Panel("epoch", f"{word} MRR", _lines(names, "mrr", split)))
    else:
        notes.append("no panel of MRR: no run ranked while training (--validate-every N)")
    for measure, (label, flag) in MEASURES.items():
        lines = _lines({log: names[log] for log in logs if log.epochs(measure)}, measure)
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


def _name(log: Log) -> str:
    cache = log.config.cache
    return f"{cache.draw} draw, {cache.refresh} refresh" if log.has_cache else log.sampler


def _lines(names: dict[Log, str], measure: str, split: str = "") -> list[Line]:
    lines = []
    for log, name in names.items():
        cache = log.config.cache
        draw, refresh = (cache.draw, cache.refresh) if log.has_cache else ("", "")
        about = {"draw": draw, "refresh": refresh, "split": split, "measure": measure}
        records = log.rankings(split) if split else log.epochs(measure)
        rows = log.points(records, {"epoch": "epoch", "value": measure}, **about)
        lines.append(Line(name, rows, "epoch", "value"))
    return lines
