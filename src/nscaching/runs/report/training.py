"""The curves of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nscaching.runs.report.charts import TOO_LARGE, Point, Series, chart
from nscaching.runs.report.markup import number, section, text

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["curves"]

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


def curves(run: Run) -> str:
    """Return the charts of a run: loss and MRR first, then whatever else it recorded."""
    epochs = [record for record in run.history if "split" not in record]
    recorded = dict.fromkeys(key for record in epochs for key in record)
    others = [key for key in recorded if key not in FIGURES and key not in ("epoch", "seconds")]
    keys = [key for key in FIGURES if key in recorded] + others
    last = max((r["epoch"] for r in epochs if abs(r["epoch"]) < TOO_LARGE), default=1)
    charts = [
        _panel(*FIGURES.get(key, (key, "")), [Series(key, _points(epochs, key))], last)
        for key in keys[:MOST]
    ]
    charts.insert(1, _rankings(run, last))
    if not any(charts):
        return ""
    hint = "Against epochs, which are passes over the training triples."
    return section("Training", hint, f'<div class="charts">\n{"".join(charts)}</div>\n')


def _rankings(run: Run, last: float) -> str:
    """Return the chart of MRR: validation with the epoch kept, and test, most often one point."""
    series = [
        Series(label, _points([r for r in run.history if r.get("split") == split], "mrr"), mark)
        for split, label, mark in (("valid", "validation", run.best_epoch), ("test", "test", None))
    ]
    series = [one for one in series if one.usable()]
    keys = [f'<i class="key c{i}">{one.label}</i>' for i, one in enumerate(series, 1)]
    return _panel("MRR", " ".join(keys), series, last)


def _points(records: Sequence[dict[str, Any]], key: str) -> list[Point]:
    """Return (epoch, figure) of the records that have such a number, an epoch once."""
    found = {
        float(record["epoch"]): float(record[key])
        for record in records
        if isinstance(record.get(key), int | float)
    }
    return sorted(found.items())


def _panel(title: str, hint: str, series: Sequence[Series], last: float) -> str:
    """Return a chart with its title, what it shows, and the value at its mark or end."""
    drawing = chart(title, series, last)
    if not drawing:
        return ""
    value = number(series[0].value())
    caption = f"<b>{text(title, 40)}</b><output>{value}</output><span>{hint}</span>"
    return f"<figure><figcaption>{caption}</figcaption>\n{drawing}</figure>\n"
