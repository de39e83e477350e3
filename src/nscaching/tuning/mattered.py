"""What mattered: the part of each hyperparameter in the MRR of the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nscaching.tuning.space import Choices, Range, Space

if TYPE_CHECKING:
    from nscaching.tuning.result import Trial

__all__ = ["Marginal", "importance", "marginals", "text"]

# Below this many trials, and two for each hyperparameter, importances are noise.
FEWEST = 8
PIECES = 4  # of a range


@dataclass(frozen=True)
class Marginal:
    """Trials with one value of a hyperparameter, or with one from a piece of its range."""

    value: str
    trials: int
    mean: float
    best: float


def importance(trials: Sequence[Trial], space: Space) -> dict[str, float]:
    """Return the share of each hyperparameter in the variance of the MRR over the space.

    The MRR is taken for a sum of effects, one function for each hyperparameter, fitted to all
    trials together by ridge regression: so what was tried seldom weighs little, and what was
    merely tried together is told apart. (Of optuna's evaluators, those by random forests need
    scikit-learn; PED-ANOVA gave over a third to hyperparameters without any effect.) Empty
    where there are too few trials to tell.
    """
    mrr = np.array([trial.mrr for trial in trials])
    if len(trials) < max(FEWEST, 2 * len(space)) or not np.ptp(mrr):
        return {}
    parts = [
        _membership([trial.settings[name] for trial in trials], part)
        for name, part in space.items()
    ]
    table = np.hstack(parts)  # [trials, values of all hyperparameters]
    ridge = table.T @ table + np.eye(table.shape[1])
    effects = np.linalg.solve(ridge, table.T @ (mrr - mrr.mean()))
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    variance = np.array([effect.var() for effect in np.split(effects, ends)])
    shares = dict(zip(space, (variance / variance.sum()).tolist(), strict=True))
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def marginals(trials: Sequence[Trial], space: Space) -> dict[str, list[Marginal]]:
    """Return mean and best MRR of the trials at each value of each hyperparameter."""
    found: dict[str, list[Marginal]] = {}
    for name, part in space.items():
        groups: list[tuple[str, list[float]]] = [(label, []) for label in _labels(part)]
        for trial in trials:
            groups[_index(trial.settings[name], part)][1].append(trial.mrr)
        found[name] = [
            Marginal(label, len(mrrs), float(np.mean(mrrs)), max(mrrs))
            for label, mrrs in groups
            if mrrs
        ]
    return found


def text(value: Any) -> str:  # noqa: ANN401
    """Write a value of a setting as short as it goes."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _membership(values: Sequence[Any], part: Choices | Range) -> npt.NDArray[np.float64]:
    """Return how far each trial has each value [trials, values]; in a range, by nearness."""
    if isinstance(part, Choices):
        return np.array([[value == one for one in part.values] for value in values], float)
    place = np.array([_place(value, part) for value in values])  # [trials]
    far = np.abs(place[:, None] * (PIECES - 1) - np.arange(PIECES))  # [trials, values]
    near: npt.NDArray[np.float64] = np.clip(1 - far, 0.0, 1.0)
    return near


def _place(value: float, part: Range) -> float:
    """Return where a number lies in its range, between 0 and 1."""
    if part.log:
        return float(np.log(value / part.low) / np.log(part.high / part.low))
    return (value - part.low) / (part.high - part.low)


def _index(value: Any, part: Choices | Range) -> int:  # noqa: ANN401
    if isinstance(part, Choices):
        return part.values.index(value)
    return max(0, min(PIECES - 1, int(PIECES * _place(value, part))))


def _labels(part: Choices | Range) -> list[str]:
    if isinstance(part, Choices):
        return [text(value) for value in part.values]
    bounds = (np.geomspace if part.log else np.linspace)(part.low, part.high, PIECES + 1)
    return [f"{low:.3g} to {high:.3g}" for low, high in pairwise(bounds)]
