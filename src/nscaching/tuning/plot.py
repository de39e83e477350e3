"""The plot of a search: what mattered, how it went, and MRR against each hyperparameter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.runs.plots import COLOURS, plain
from nscaching.tuning.mattered import text
from nscaching.tuning.space import Choices, Range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nscaching.tuning.result import Trial, Tuning

__all__ = ["plot_tuning"]

BLUE, ORANGE, GREEN, *_ = COLOURS
GREY = "#9A9A9A"
ACROSS = 4  # slices in a row
# How each kind of trial is drawn: hollow where it was not trained to the end.
MARKS: dict[str, dict[str, Any]] = {
    "finished": {"marker": "o", "color": BLUE, "alpha": 0.75, "linewidths": 0, "s": 24},
    "pruned": {"marker": "o", "facecolors": "none", "edgecolors": GREY, "s": 20},
    "failed": {"marker": "x", "color": ORANGE, "s": 24},
}
BEST: dict[str, Any] = {"marker": "*", "color": GREEN, "s": 130, "zorder": 5, "linewidths": 0}


def plot_tuning(tuning: Tuning, path: Path) -> None:
    """Draw importances and best-so-far above, and a slice for each hyperparameter below."""
    from matplotlib.figure import Figure  # the object alone: no display, no global state

    shares = tuning.importance()
    names = list(shares) or list(tuning.space)
    rows = -(-len(names) // ACROSS)
    across = min(len(names), ACROSS)
    figure = Figure(figsize=(10, 3.4 + 2.7 * rows), dpi=150, layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[3.4, 2.7 * rows])[:, 0]
    left, right = above.subplots(1, 2, width_ratios=[2, 3])
    _importances(left, shares, names)
    _history(right, tuning)
    slices = below.subplots(rows, across, sharey=True, squeeze=False).ravel()
    for axes, name in zip(slices, names, strict=False):
        _slice(axes, tuning, name)
    for axes in slices[len(names) :]:
        axes.set_visible(False)
    for axes in slices[::across]:
        axes.set_ylabel("validation MRR")
    slices[0].set_title("at each value; a line: their mean", fontsize=10, loc="left")
    config, found = tuning.config, tuning.trials
    count = f"{len(found)} trials" if len(found) != 1 else "1 trial"
    title = f"{config.model} with {config.sampler} on {tuning.name}"
    figure.suptitle(plain(f"{title}: {count} of {config.epochs} epochs"), fontsize=12)
    figure.savefig(path)


def _importances(axes: Axes, shares: dict[str, float], names: Sequence[str]) -> None:
    axes.set_title("what mattered", fontsize=10, loc="left")
    if not shares:
        axes.text(0.5, 0.5, "too few trials to tell", ha="center", va="center", color=GREY)
        axes.set_axis_off()
        return
    values = [100 * shares[name] for name in names]
    bars = axes.barh(names, values, color=BLUE, height=0.6)
    axes.bar_label(bars, [f"{value:.0f}%" for value in values], padding=3, fontsize=9)
    axes.set_xlim(0, 1.15 * max(values))
    axes.set_xlabel("share of the variance of MRR, %")
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _history(axes: Axes, tuning: Tuning) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("how it went", fontsize=10, loc="left")
    axes.step(*_best_so_far(tuning.trials), where="post", color=GREEN, label="best so far")
    _trials(axes, tuning, [trial.number for trial in tuning.trials])
    axes.set_xlabel("trial")
    axes.set_ylabel("validation MRR")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles, labels, ncols=len(labels), loc="lower right", bbox_to_anchor=(1, 1), fontsize=8,
        frameon=False, borderaxespad=0.1, handletextpad=0.3, columnspacing=1,
    )  # fmt: skip
    _frame(axes)


def _best_so_far(trials: Sequence[Trial]) -> tuple[list[float], list[float]]:
    """Return numbers and best MRRs; they end past the last trial, whose star may hide a step."""
    finished = [trial.mrr if trial.state == "finished" else 0.0 for trial in trials]
    best = list(accumulate(finished, max))
    past = trials[-1].number + max(0.5, 0.03 * len(trials))
    return [*(trial.number for trial in trials), past], [*best, best[-1]]


def _slice(axes: Axes, tuning: Tuning, name: str) -> None:
    part = tuning.space[name]
    values = [trial.settings[name] for trial in tuning.trials]
    if isinstance(part, Choices):
        # Beside each other, so that equal ones are seen; where they stand is no matter of chance.
        beside = np.resize([0.0, 0.16, -0.16, 0.08, -0.08], len(values))
        places = np.array([part.values.index(value) for value in values]) + beside
        labels = [plain(text(value)) for value in part.values]
        axes.set_xticks(range(len(labels)), labels)
        if len("".join(labels)) > 18:
            axes.tick_params(axis="x", labelsize=8)
        axes.set_xlim(-0.5, len(part.values) - 0.5)
        _means(axes, tuning, name, part)
        _trials(axes, tuning, places.tolist())
    else:
        _trials(axes, tuning, values)
        _range(axes, part)
    axes.set_xlabel(name)
    axes.set_ylim(bottom=0)
    _frame(axes)


def _means(axes: Axes, tuning: Tuning, name: str, part: Choices) -> None:
    """Draw a short line at the mean of each value."""
    for place, value in enumerate(part.values):
        mrrs = [trial.mrr for trial in tuning.trials if trial.settings[name] == value]
        if mrrs:
            axes.hlines(np.mean(mrrs), place - 0.32, place + 0.32, color=BLUE, alpha=0.5, lw=1.5)


def _range(axes: Axes, part: Range) -> None:
    if part.log:
        axes.set_xscale("log")
        if part.high / part.low < 100:  # too narrow for powers of ten
            ticks = np.geomspace(part.low, part.high, 5).tolist()
            axes.set_xticks(ticks, [text(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
        ratio = (part.high / part.low) ** 0.05
        axes.set_xlim(part.low / ratio, part.high * ratio)
    else:
        margin = 0.05 * (part.high - part.low)
        axes.set_xlim(part.low - margin, part.high + margin)


def _trials(axes: Axes, tuning: Tuning, places: Sequence[float]) -> None:
    """Draw every trial by its kind, and a star on the best."""
    pairs: list[tuple[float, Trial]] = list(zip(places, tuning.trials, strict=True))
    for state, mark in MARKS.items():
        of_kind = [(place, trial.mrr) for place, trial in pairs if trial.state == state]
        if of_kind:
            axes.scatter(*zip(*of_kind, strict=True), **mark, label=state, clip_on=False)
    if any(trial.state == "finished" for trial in tuning.trials):
        best = tuning.best
        axes.scatter(places[best.number - 1], best.mrr, **BEST, label="best")


def _frame(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
