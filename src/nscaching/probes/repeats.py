"""Repeat ratio (RR): the share of a window's negatives that occurred before in the window."""

import torch
from torch import Tensor

from nscaching.errors import UserError, flag
from nscaching.kernels.batch import Negatives
from nscaching.kernels.sorting import ordered
from nscaching.kernels.state import State, join, part

# Negatives kept of a window (8 bytes each, and as much again while they are counted). Of a larger
# window, only the negatives in one part of all possible triples are kept.
MOST_KEPT = 1 << 26
MOST_OF_AN_EPOCH = 1 << 28

# An odd number that spreads codes over all 64 bits (2⁶⁴ divided by the golden ratio).
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)


class RepeatMeter:
    """Records the negatives of every step in fixed memory, and counts them once a window.

    A CUDA graph can hold the recording. On a GPU the recording runs on a second stream, and the
    rest of the step does not wait.
    """

    def __init__(self, window: int, relation: Tensor, relations: int, entities: int) -> None:
        self.window, self.entities = window, entities
        if entities**2 * relations >= 1 << 63:
            reason = "so many entities and relations cannot be numbered"
            raise UserError(f"{flag('probe_repeats')}: {reason}")
        self.base = (relation * entities**2).unsqueeze(1)  # [n, 1]
        self.pairs = relation.new_empty(0, 0)
        """For each training triple [n, K], h̄·|E| + t̄ of its negatives in this epoch."""
        self.kept: list[Tensor] = []
        self.aside = torch.cuda.Stream(relation.device) if relation.is_cuda else None
        self.parts = 1
        """All possible triples are divided into so many parts, one of which is counted."""

    def record(self, rows: Tensor, negatives: Negatives) -> None:
        """Record the negatives [B, K] of the training triples in some rows [B]."""
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
        """Return the negatives of this epoch and of those before it in the window."""
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
