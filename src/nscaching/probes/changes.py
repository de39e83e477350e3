"""Changed elements (CE): how much of a cache row is new since the epoch before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import Side
from nscaching.probes.sorting import ordered

__all__ = ["ChangeMeter", "new_elements"]

# Keys of each side that are looked at; where there are more, a sample of this size.
KEYS = 1024


class ChangeMeter:
    """Holds the rows of some keys against what they were an epoch before."""

    def __init__(self, cache: Mapping[Side, Tensor], seed: int) -> None:
        self.cache, self.keys = cache, {}
        random = np.random.default_rng(seed)
        for side, ids in cache.items():
            keys = np.arange(len(ids))
            if len(keys) > KEYS:
                keys = np.sort(random.choice(keys, KEYS, replace=False))
            self.keys[side] = torch.from_numpy(keys).to(ids.device)
        self.before = self._rows()

    def _rows(self) -> Tensor:
        """Return the rows of the keys, heads first."""
        return torch.cat([ids[self.keys[side]] for side, ids in self.cache.items()])

    def read(self) -> dict[str, float]:
        """Return the mean number of new elements of a row, mean over both sides."""
        before, self.before = self.before, self._rows()
        found = new_elements(before, self.before).float()
        sides = found.split([len(keys) for keys in self.keys.values()])
        means = torch.stack([side.mean() for side in sides])
        return {"changed_elements": float(means.mean())}


def new_elements(before: Tensor, now: Tensor) -> Tensor:
    """Count in each row [n, N1] the different elements that the row before lacks."""
    return _distinct(torch.cat([before, now], dim=1)) - _distinct(before)


def _distinct(rows: Tensor) -> Tensor:
    rows = ordered(rows)
    return 1 + (rows[:, 1:] != rows[:, :-1]).sum(1)
