"""A batch of training triples, its negatives, and known answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models import Model


@dataclass(frozen=True)
class Negatives:
    """False triples for each triple of a batch; they keep its relation."""

    head: Tensor  # [B, K]
    tail: Tensor  # [B, K]
    replace_head: Tensor | None = None
    """Whether all negatives of a triple have a new head, else a new tail [B]; None: they vary."""
    adversarial: float = 0.0
    """Above 0: the losses of a triple's negatives are weighed by softmax(this · their score)."""

    @property
    def entity(self) -> Tensor:
        """The entities [B, K] that replace head or tail."""
        if self.replace_head is None:
            raise ValueError("these negatives do not say which side they replace")
        return torch.where(self.replace_head.unsqueeze(1), self.head, self.tail)

    def scores(self, model: Model, batch: Batch) -> Tensor:
        if self.replace_head is None or self.head.shape[1] == 1:
            return model.score(self.head, batch.relation.unsqueeze(1), self.tail)
        return model.score_corrupted(
            self.replace_head, batch.head, batch.relation, batch.tail, self.entity
        )


@dataclass(frozen=True)
class Batch:
    """Some training triples: ids [B] each, and the keys [B] of their two queries.

    The head's key numbers the queries (?, r, t) of training, the tail's the queries (h, r, ?).
    """

    head: Tensor
    relation: Tensor
    tail: Tensor
    head_key: Tensor
    tail_key: Tensor

    def key(self, side: Side) -> Tensor:
        return self.head_key if side is Side.HEAD else self.tail_key

    def corrupt(self, replace_head: Tensor, head: Tensor, tail: Tensor) -> Negatives:
        """Put ``head`` [B, K] or ``tail`` [B, K] into each triple, as ``replace_head`` [B] says.

        With one negative for each triple, [B] works too.
        """
        head, tail = (ids.unsqueeze(1) if ids.dim() == 1 else ids for ids in (head, tail))
        replace = replace_head.unsqueeze(1)
        return Negatives(
            torch.where(replace, head, self.head.unsqueeze(1)),
            torch.where(replace, self.tail.unsqueeze(1), tail),
            replace_head,
        )

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True)
class Known:
    """The other known answers of some queries: query i has answers[start_i:end_i]."""

    start: Tensor  # [n]
    end: Tensor  # [n]
    answers: Tensor  # int32 [all]

    def cut(self, bounds: Tensor) -> Tensor:
        """Return for each query how far its answers below each bound [p] reach: places [n, p].

        The answers of a query ascend.
        """
        low, high = (at.unsqueeze(1).expand(-1, len(bounds)) for at in (self.start, self.end))
        return self._first(low, high, bounds)

    def part(self, some: slice) -> Known:
        return Known(self.start[some], self.end[some], self.answers)

    def holds(self, row: Tensor, entity: Tensor) -> Tensor:
        """Say of each pair of query and entity [m] whether the query knows the entity."""
        end = self.end[row]
        place = self._first(self.start[row], end, entity)
        return (place < end) & (self.answers[place.clamp(max=len(self.answers) - 1)] == entity)

    def _first(self, low: Tensor, high: Tensor, bound: Tensor) -> Tensor:
        """Find the first answer from ``low`` on that is not below a bound, or else ``high``."""
        longest = int((self.end - self.start).max()) if len(self.start) else 0
        for _ in range(longest.bit_length()):
            middle = (low + high) // 2
            below = self.answers[middle.clamp(max=len(self.answers) - 1)] < bound
            below &= middle < high
            low, high = low.where(~below, middle + 1), high.where(below, middle)
        return low

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Return query and answer of all known answers, query by query."""
        size = self.end - self.start
        row = torch.repeat_interleave(size)
        # Position in the row's own run of answers: a running count less where it began.
        within = torch.arange(len(row), device=size.device) - (size.cumsum(0) - size)[row]
        return row, self.answers[self.start[row] + within].long()
