"""Logistic regression with an offset for each group, by Newton's method."""

import numpy as np

from nscaching.data.index import Longs
from nscaching.evaluation.calibration import logistic
from nscaching.evaluation.ranks import Floats

STEPS = 100  # of Newton's method, which takes about six
HELD = 1e300  # a ridge that leaves nothing of an offset


def most_likely(
    parts: Floats, target: Floats, group: Longs | None = None, ridge: float = 0.0
) -> tuple[Floats, Floats]:
    """Return the weights [1 + k] of a constant and of parts [n, k], and the offsets of groups.

    They minimise the cross-entropy with the targets [n], plus ridge/2 times the squares of all but
    the constant. ``group`` [n] numbers the groups from 0; None: no offsets.
    """
    x = np.column_stack([np.ones(len(target)), parts])
    pull = np.r_[0.0, np.full(parts.shape[1], ridge)]
    pull_group = HELD if group is None else ridge
    group = np.zeros(len(target), dtype=np.int64) if group is None else group
    share = target.mean()
    weights = np.r_[np.log(share) - np.log1p(-share), np.zeros(parts.shape[1])]
    offsets = np.zeros(int(group.max()) + 1)

    def loss(weights: Floats, offsets: Floats) -> float:
        odds = x @ weights + offsets[group]
        squares = (pull * weights**2).sum() + pull_group * (offsets**2).sum()
        return float((np.logaddexp(0, odds) - target * odds).sum() + squares / 2)

    now = loss(weights, offsets)
    for _ in range(STEPS):
        chance = logistic(x @ weights + offsets[group])
        error, curvature = chance - target, chance * (1 - chance)
        slope = x.T @ error + pull * weights
        slopes = np.bincount(group, error) + pull_group * offsets
        # The curvature of the offsets is diagonal: they are solved for, the weights remain.
        own = np.bincount(group, curvature) + pull_group + 1e-12
        shared = np.stack([np.bincount(group, part * curvature) for part in x.T], axis=1)
        matrix = x.T @ (x * curvature[:, np.newaxis]) + np.diag(pull + 1e-12)
        matrix -= shared.T @ (shared / own[:, np.newaxis])
        step = np.linalg.solve(matrix, slope - shared.T @ (slopes / own))
        steps = (slopes - shared @ step) / own
        length, gain = 1.0, float(slope @ step + slopes @ steps)
        while (then := loss(weights - length * step, offsets - length * steps)) > (
            now - 1e-4 * length * gain
        ):
            length /= 2
            if length < 1e-10:
                return weights, offsets
        weights, offsets, now = weights - length * step, offsets - length * steps, then
        if np.abs(step).sum() + np.abs(steps).max() < 1e-10 * (1 + np.abs(weights).sum()):
            break
    return weights, offsets
