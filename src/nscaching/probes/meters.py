"""Figures of epochs: the repeat ratio of negatives, and the changed elements of cache rows."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import Kernels, Negatives, State, join, part
from nscaching.kernels.choose import ordered

# Negatives kept of a window (8 bytes each, and as much again while they are counted). Of a larger
# window, only the negatives in one part of all possible triples are kept.
MOST_KEPT = 1 << 26
MOST_OF_AN_EPOCH = 1 << 28

# An odd number that spreads codes over all 64 bits (2⁶⁴ divided by the golden ratio).
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)

# Of each side of a cache at most this many keys are compared, chosen at random.
KEYS = 512


class RepeatMeter:
    """Repeat ratio (RR): the share of a window's negatives that occurred before in the window.

    The negatives of every step are recorded in fixed memory, so that a CUDA graph can hold the
    recording. On a GPU it runs on a second stream, and the rest of the step does not wait.
    """

    def __init__(self, window: int, relation: Tensor, relations: int, entities: int) -> None:
        self.window, self.entities = window, entities
        if entities**2 * relations >= 1 << 63:
            reason = "so many entities and relations cannot be numbered"
            raise UserError(f"{flag('probe_repeats')}: {reason}")
        self.base = (relation.long() * entities**2).unsqueeze(1)  # [n, 1]
        self.pairs = self.base.new_empty(0, 0)
        """For each training triple [n, K], h̄·|E| + t̄ of its negatives in this epoch."""
        self.kept: list[Tensor] = []
        self.aside = torch.cuda.Stream(relation.device) if relation.is_cuda else None
        self.parts = 1  # of all possible triples; one of them is counted

    def record(self, rows: Tensor, negatives: Negatives) -> None:
        if not len(self.pairs):  # the first step, before any CUDA graph
            self._make_room(negatives.head.shape[1])
        if self.aside is not None:
            self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):  # None: the same stream
            pairs = torch.add(negatives.tail, negatives.head, alpha=self.entities)
            self.pairs.index_copy_(0, rows, pairs)

    def join(self) -> None:
        if self.aside is not None:
            torch.cuda.current_stream().wait_stream(self.aside)

    def _make_room(self, count: int) -> None:
        size = len(self.base) * count
        if not 0 < size <= MOST_OF_AN_EPOCH:
            takes = f"takes 1 to {MOST_OF_AN_EPOCH:,} negatives in an epoch, not {size:,}"
            raise UserError(f"{flag('probe_repeats')} {takes}")
        self.pairs = self.base.new_zeros(len(self.base), count)
        self.parts = -(-size * self.window // MOST_KEPT)

    def read(self, epoch: int) -> dict[str, float]:
        """End an epoch; at the end of a window, return the share of repeats in it."""
        codes = (self.base + self.pairs).view(-1)
        if self.parts > 1:  # by triple, so that all repeats of a triple are counted
            codes = codes[(codes * SPREAD >> 32) % self.parts == 0]
        self.kept.append(codes)
        if epoch % self.window:
            return {}
        every, self.kept = torch.cat(self.kept), []
        return {"repeat_ratio": 1 - distinct(every) / max(1, len(every))}

    def checkpoint(self) -> State:
        kept = {str(number): codes for number, codes in enumerate(self.kept)}
        return {"pairs": self.pairs, **join(kept=kept)}

    def restore(self, state: State) -> None:
        pairs, kept = state["pairs"], part(state, "kept")
        if len(pairs):
            self._make_room(pairs.shape[1])
            self.pairs.copy_(pairs)
        self.kept = [kept[str(n)].clone().to(self.base.device) for n in range(len(kept))]


def distinct(codes: Tensor) -> int:
    if codes.is_cuda:
        return len(codes.unique())  # unique sorts the codes without their places
    codes = ordered(codes)
    return int((codes[1:] != codes[:-1]).sum()) + bool(len(codes))


class ChangeMeter:
    """Changed elements (CE): how much of the cache rows of some keys is new since an epoch."""

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
        self.count(len(self.share))
        return {"changed_elements": float(self.mean)}

    def _count(self, _rows: int) -> None:
        sizes = [len(keys) for keys in self.keys.values()]
        parts = zip(self.before.split(sizes), self.counts.split(sizes), strict=True)
        for (side, keys), (before, counts) in zip(self.keys.items(), parts, strict=True):
            self.kernels.new_elements(self.cache[side], keys, before, counts)
        self.mean.copy_((self.counts * self.share).sum())

    def checkpoint(self) -> State:
        return {"before": self.before}

    def restore(self, state: State) -> None:
        self.before.copy_(state["before"])
