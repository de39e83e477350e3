"""The plot of a search: importances, the course of the search, MRR against each hyperparameter.

Optuna's own plots show finished trials alone, and change matplotlib's global style.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import CategoricalDistribution

from nscaching.runs.plots import COLOURS, plain
from nscaching.tuning.space import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nscaching.tuning.result import Tuning

BLUE, ORANGE, GREEN, *_ = COLOURS
GREY = "#9A9A9A"
ACROSS = 4  # slices in a row
# The mark of each kind of trial: a hollow one for a trial that was stopped early.
MARKS: dict[str, dict[str, Any]] = {
    "finished": {"marker": "o", "color": BLUE, "alpha": 0.75, "linewidths": 0, "s": 24},
    "pruned": {"marker": "o", "facecolors": "none", "edgecolors": GREY, "s": 20},
    "failed": {"marker": "x", "color": ORANGE, "s": 24},
    "best": {"marker": "*", "color": GREEN, "linewidths": 0, "s": 130, "zorder": 5},
}


def plot_tuning(tuning: Tuning, path: Path) -> None:
    from matplotlib.figure import Figure  # the object alone: no display, no global state

    shares = tuning.importance()
    names = list(shares) or list(tuning.space)
    rows, across = -(-len(names) // ACROSS), min(len(names), ACROSS)
    heights = [3.4, 2.7 * rows]
    figure = Figure(figsize=(10, sum(heights)), dpi=150, layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    left, right = above.subplots(1, 2, width_ratios=[2, 3])
    _importances(left, shares)
    _course(right, tuning)
    slices = below.subplots(rows, across, sharey=True, squeeze=False).ravel()
    for axes, name in zip(slices, names, strict=False):
        _slice(axes, tuning, name)
    for axes in slices[len(names) :]:
        axes.set_visible(False)
    for axes in slices[::across]:
        axes.set_ylabel("validation MRR")
    slices[0].set_title("at each value; a line: their mean", fontsize=10, loc="left")
    figure.suptitle(plain(str(tuning)), fontsize=12)
    figure.savefig(path)


def _importances(axes: Axes, shares: dict[str, float]) -> None:
    axes.set_title("importance", fontsize=10, loc="left")
    if not shares:
        axes.text(0.5, 0.5, "too few trials to tell", ha="center", va="center", color=GREY)
        axes.set_axis_off()
        return
    bars = axes.barh(list(shares), [100 * share for share in shares.values()], color=BLUE)
    axes.bar_label(bars, fmt="%.0f%%", padding=3, fontsize=9)
    axes.margins(x=0.15)
    axes.set_xlabel("share of the variance of MRR, %")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def _course(axes: Axes, tuning: Tuning) -> None:
    axes.set_title("course of the search", fontsize=10, loc="left")
    numbers = [trial.number for trial in tuning.trials]
    finished = (trial.mrr if trial.state == "finished" else 0.0 for trial in tuning.trials)
    best_so_far = list(accumulate(finished, max))
    axes.step(numbers, best_so_far, where="post", color=GREEN, label="best so far")
    _trials(axes, tuning, numbers)
    axes.set_xlabel("trial")
    axes.set_ylabel("validation MRR")
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)
    axes.legend(
        ncols=5, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False,
        columnspacing=1, handletextpad=0.3,
    )  # fmt: skip


def _slice(axes: Axes, tuning: Tuning, name: str) -> None:
    part = tuning.space[name]
    places = np.array([trial.settings[name] for trial in tuning.trials])
    if isinstance(part, CategoricalDistribution):
        labels = [plain(short(choice)) for choice in part.choices]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_xlim(-0.5, len(labels) - 0.5)
        found = np.array([part.choices.index(trial.settings[name]) for trial in tuning.trials])
        for place, one in zip(np.unique(found), tuning.marginals()[name], strict=True):
            axes.hlines(one["mean"], place - 0.32, place + 0.32, color=BLUE, alpha=0.5, lw=1.5)
        # Beside each other, so that trials with equal MRR are seen.
        places = found + np.resize([0.0, 0.16, -0.16, 0.08, -0.08], len(found))
    elif part.log:
        axes.set_xscale("log")
        ticks = np.geomspace(part.low, part.high, 4)
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    _trials(axes, tuning, places.tolist())
    axes.set_xlabel(name)


def _trials(axes: Axes, tuning: Tuning, places: Sequence[float]) -> None:
    kinds = {state: [t for t in tuning.trials if t.state == state] for state in MARKS}
    kinds["best"] = [tuning.best] if tuning.finished else []
    for kind, chosen in kinds.items():
        if chosen:
            x, y = [places[trial.number - 1] for trial in chosen], [trial.mrr for trial in chosen]
            axes.scatter(x, y, **MARKS[kind], label=kind, clip_on=False)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
