"""Changed elements (CE): how much of a cache row is new since the epoch before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.checkpoint import State
from nscaching.graph import Side
from nscaching.probes.sorting import ordered

__all__ = ["ChangeMeter", "by_pairs", "by_sorting", "lookout"]

# Keys of each side that are looked at; where there are more, a sample of this size.
KEYS = 512


class ChangeMeter:
    """Holds the rows of some keys against what they were an epoch before."""

    def __init__(self, cache: Mapping[Side, Tensor], seed: int) -> None:
        self.cache, self.keys = cache, {}
        random, shares = np.random.default_rng(seed), []
        for side, ids in cache.items():
            keys = np.arange(len(ids))
            if len(keys) > KEYS:
                keys = np.sort(random.choice(keys, KEYS, replace=False))
            self.keys[side] = torch.from_numpy(keys).to(ids.device)
            shares += [1 / len(cache) / len(keys)] * len(keys)
        self.before = self._rows()
        self.share = torch.tensor(shares, dtype=torch.float64, device=self.before.device)
        """Of each row in the mean: both sides count the same."""
        if self.before.is_cuda:
            self.lookout = lookout(self.before.shape[1], self.before.device)

    def _rows(self) -> Tensor:
        """Return the rows of the keys, heads first."""
        return torch.cat([ids[self.keys[side]] for side, ids in self.cache.items()])

    def read(self) -> dict[str, float]:
        """Return the mean number of new elements of a row, mean over both sides."""
        before, self.before = self.before, self._rows()
        if before.is_cuda:
            found = by_pairs(before, self.before, self.lookout)
        else:
            found = by_sorting(before, self.before)
        return {"changed_elements": float(found.double() @ self.share)}

    def checkpoint(self) -> State:
        """Return the rows of the epoch before."""
        return {"before": self.before}

    def restore(self, state: State) -> None:
        """Take the rows of the epoch before."""
        self.before.copy_(state["before"])


def by_sorting(before: Tensor, now: Tensor) -> Tensor:
    """Count in each row [n, N1] the different elements that the row before lacks."""

    def distinct(rows: Tensor) -> Tensor:
        rows = ordered(rows)
        return (rows[:, 1:] != rows[:, :-1]).sum(1)

    return distinct(torch.cat([before, now], dim=1)) - distinct(before)


def lookout(size: int, device: torch.device) -> Tensor:
    """Return where an element would have to stand not to be new [N1, 2·N1].

    That is anywhere in the row before, or further left in its own.
    """
    earlier = torch.ones(size, size, dtype=torch.bool, device=device).tril(-1)
    return torch.cat([torch.ones_like(earlier), earlier], dim=1)


def by_pairs(before: Tensor, now: Tensor, lookout: Tensor) -> Tensor:
    """Count the same by comparing all with all: more work, but few kernels."""
    rows = torch.cat([before, now], dim=1)
    there = (now.unsqueeze(2) == rows.unsqueeze(1)) & lookout  # [n, N1, 2·N1]
    return now.shape[1] - there.any(2).sum(1)
