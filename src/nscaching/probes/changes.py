"""Changed elements (CE): how much of a cache row is new since the epoch before."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import Kernels
from nscaching.kernels.state import State

# Of each side at most this many keys are compared, chosen at random.
KEYS = 512


class ChangeMeter:
    """Compares the cache rows of some keys with the rows of the epoch before."""

    def __init__(self, cache: Mapping[Side, Tensor], seed: int, kernels: Kernels) -> None:
        self.cache, self.kernels, self.keys = cache, kernels, {}
        random, shares = np.random.default_rng(seed), []
        for side, ids in cache.items():
            keys = np.arange(len(ids))
            if len(keys) > KEYS:
                keys = np.sort(random.choice(keys, KEYS, replace=False))
            self.keys[side] = torch.from_numpy(keys).to(ids.device)
            shares += [1 / len(cache) / len(keys)] * len(keys)
        self.before = torch.cat([ids[self.keys[side]] for side, ids in cache.items()])
        """The rows of the epoch before, heads first."""
        self.share = torch.tensor(shares, dtype=torch.float64, device=self.before.device)
        """The weight of each row in the mean: both sides have the same weight."""
        self.counts, self.mean = torch.zeros_like(self.share), self.share.new_zeros(())
        # On a GPU, a few small kernels take less time than their launches one by one.
        self.count = kernels.capture(self._count, lambda: "count")

    def read(self, _epoch: int) -> dict[str, float]:
        """Return the mean number of new elements of a row, mean over both sides."""
        self.count(self.share)
        return {"changed_elements": float(self.mean)}

    def _count(self, share: Tensor) -> None:
        """Set the weighted mean of the new elements, and remember the rows of now."""
        sizes = [len(keys) for keys in self.keys.values()]
        parts = zip(self.before.split(sizes), self.counts.split(sizes), strict=True)
        for (side, keys), (before, counts) in zip(self.keys.items(), parts, strict=True):
            self.kernels.new_elements(self.cache[side], keys, before, counts)
        self.mean.copy_((self.counts * share).sum())

    def checkpoint(self) -> State:
        return {"before": self.before}

    def restore(self, state: State) -> None:
        self.before.copy_(state["before"])
