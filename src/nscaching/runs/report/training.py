"""The curves of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nscaching.runs.report.charts import TOO_LARGE, Point, Series, chart

if TYPE_CHECKING:
    from nscaching.runs.run import Run

FIGURES = {
    "loss": ("Loss", "mean of a training triple"),
    "nonzero_loss": ("Non-zero loss", "share of triples that still teach something"),
    "gradient_norm": ("Gradient norm", "mean of a step"),
    "generator_loss": ("Generator’s loss", "mean of a training triple"),
    "reward": ("Generator’s reward", "what the model thinks of the negatives it drew"),
    "entropy": ("Generator’s entropy", "how undecided it is, in nats"),
    "repeat_ratio": ("Repeat ratio", "share of negatives that came before, a few epochs back"),
    "changed_elements": ("Changed elements", "entities of a cache row that an epoch replaced"),
}
MOST = 12
"""Figures that are drawn; a sampler of the user's may record any number."""


def panels(run: Run) -> list[dict[str, Any]]:
    """Return the charts of a run: loss and MRR first, then all other recorded figures."""
    epochs = [record for record in run.history if "split" not in record]
    recorded = dict.fromkeys(key for record in epochs for key in record)
    others = [key for key in recorded if key not in FIGURES and key not in ("epoch", "seconds")]
    keys = [key for key in FIGURES if key in recorded] + others
    last = max((r["epoch"] for r in epochs if abs(r["epoch"]) < TOO_LARGE), default=1)
    drawn = [
        _panel(*FIGURES.get(key, (key, "")), [Series(key, _points(epochs, key))], last)
        for key in keys[:MOST]
    ]
    rankings = [
        Series(label, _points([r for r in run.history if r.get("split") == split], "mrr"), mark)
        for split, label, mark in (("valid", "validation", run.best_epoch), ("test", "test", None))
    ]
    drawn.insert(1, _panel("MRR", "", [one for one in rankings if one.usable()], last))
    return [panel for panel in drawn if panel]


def _points(records: Sequence[dict[str, Any]], key: str) -> list[Point]:
    """Return (epoch, figure) of the records that have such a number, an epoch once."""
    found = {
        float(record["epoch"]): float(record[key])
        for record in records
        if isinstance(record.get(key), int | float)
    }
    return sorted(found.items())


def _panel(title: str, hint: str, series: Sequence[Series], last: float) -> dict[str, Any]:
    """Return a chart with its title, its hint or the labels of its lines, and its last value."""
    drawn = chart(title, series, last)
    if not drawn:
        return {}
    labels = [] if hint or title != "MRR" else [one.label for one in series]
    value = series[0].value()
    return {"title": title, "hint": hint, "labels": labels, "value": value, "chart": drawn}
