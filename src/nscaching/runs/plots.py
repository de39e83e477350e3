"""Plots of runs: loss and validation MRR against the time spent in training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.files import replacing
from nscaching.runs.escaping import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nscaching.runs.run import Run

# Distinguishable with the common kinds of colour blindness (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def plot_run(run: Run, path: Path) -> None:
    figure, (left, right) = _figure(2, 9.0)
    epochs = [r for r in run.history if "loss" in r]
    seconds = list(accumulate(r["seconds"] for r in epochs))
    left.plot(seconds, [r["loss"] for r in epochs], color=COLOURS[1])
    _label(left, "mean loss of a training triple")
    _validation(right, run, COLOURS[0], None)
    _label(right, "validation MRR")
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    figure.suptitle(plain(title), fontsize=11)
    _save(figure, path)


def plot_comparison(runs: Sequence[Run], names: Sequence[str], path: Path) -> None:
    figure, (axes,) = _figure(1, 7.0)
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        _validation(axes, run, COLOURS[i % len(COLOURS)], plain(name))
    _label(axes, "validation MRR")
    axes.legend(frameon=False)
    _save(figure, path, shared=True)


def _figure(panels: int, width: float) -> tuple[Any, Sequence[Axes]]:
    from matplotlib.figure import Figure  # not pyplot: no display, no global state

    figure = Figure(figsize=(width, 3.6), dpi=150, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _save(figure: Figure, path: Path, shared: bool = False) -> None:
    with replacing(path, shared=shared) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script without a font
        figure.savefig(partial, format=path.suffix[1:])


def _validation(axes: Axes, run: Run, colour: str, label: str | None) -> None:
    rankings = [r for r in run.history if r.get("split") == "valid"]
    seconds = [r["trained_seconds"] for r in rankings]
    axes.plot(seconds, [r["mrr"] for r in rankings], "o-", ms=3, color=colour, label=label)
    look: Any = {"textcoords": "offset points", "ha": "right", "color": colour, "fontsize": 9}
    for r in rankings:
        if r["epoch"] == run.best_epoch:
            axes.annotate(f"{r['mrr']:.3f}", (r["trained_seconds"], r["mrr"]), (0, 5), **look)


def _label(axes: Axes, what: str) -> None:
    axes.set(xlabel="seconds of training", ylabel=what)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def plain(text: str) -> str:
    """Escape mathematics ("$"), a leading "_" (it hides a legend entry) and control characters."""
    return visible(text).replace("$", r"\$").replace("_", " _", text.startswith("_"))
