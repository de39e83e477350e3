"""The importance of each hyperparameter for the MRR of the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import CategoricalDistribution

from nscaching.tuning.space import Part, Space, short

if TYPE_CHECKING:
    from nscaching.tuning.result import Trial

# With fewer trials, or fewer than two for each hyperparameter, importances are noise.
FEWEST = 8
PIECES = 4  # of a range


@dataclass(frozen=True)
class Marginal:
    """The trials with one value of a hyperparameter, or with values in one piece of its range."""

    value: str
    trials: int
    mean: float
    best: float


def importance(trials: Sequence[Trial], space: Space) -> dict[str, float]:
    """Return the share of each hyperparameter in the variance of the MRR, largest first.

    The model of the MRR is a sum of effects, one function for each hyperparameter, fitted to all
    trials together by ridge regression. So a value with few trials weighs little, and values that
    were tried together are told apart. Optuna's evaluators do not serve here: the random forests
    need scikit-learn, and PED-ANOVA compares the best tenth of the trials with all trials, and a
    tenth of fifty is too few. Empty if there are too few trials.
    """
    mrr = np.array([trial.mrr for trial in trials])
    if len(trials) < max(FEWEST, 2 * len(space)) or not np.ptp(mrr):
        return {}
    parts = [_membership([t.settings[name] for t in trials], space[name]) for name in space]
    table = np.hstack(parts)  # [trials, values of all hyperparameters]
    ridge = table.T @ table + np.eye(table.shape[1])
    effects = np.linalg.solve(ridge, table.T @ (mrr - mrr.mean()))
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    variance = np.array([effect.var() for effect in np.split(effects, ends)])
    shares = dict(zip(space, (variance / variance.sum()).tolist(), strict=True))
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _membership(values: Sequence[Any], part: Part) -> npt.NDArray[np.float64]:
    """Return how much each trial has of each value [trials, values]; in a range by nearness."""
    if isinstance(part, CategoricalDistribution):
        return np.array([[value == choice for choice in part.choices] for value in values], float)
    scale = np.log if part.log else np.asarray
    knots = np.linspace(scale(part.low), scale(part.high), PIECES)
    return np.stack([np.interp(scale(values), knots, knot) for knot in np.eye(PIECES)], axis=1)


def marginals(trials: Sequence[Trial], space: Space) -> dict[str, list[Marginal]]:
    """Return mean and best MRR of the trials at each value of each hyperparameter."""
    mrr = np.array([trial.mrr for trial in trials])
    found: dict[str, list[Marginal]] = {}
    for name, part in space.items():
        values = [trial.settings[name] for trial in trials]
        if isinstance(part, CategoricalDistribution):
            labels = list(map(short, part.choices))
            group = [part.choices.index(value) for value in values]
        else:
            bounds = (np.geomspace if part.log else np.linspace)(part.low, part.high, PIECES + 1)
            labels = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(bounds)]
            group = np.searchsorted(bounds[1:-1], values, side="right").tolist()
        mrrs = {i: mrr[np.array(group) == i] for i in sorted(set(group))}
        found[name] = [
            Marginal(labels[i], len(of), float(of.mean()), float(of.max()))
            for i, of in mrrs.items()
        ]
    return found
