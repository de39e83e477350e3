"""The training triples on a device, in shuffled batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.checkpoint import State
from nscaching.graph import KnowledgeGraph, Side
from nscaching.models import Model

__all__ = ["Batch", "Gather", "Negatives", "TrainingTriples", "plain_gather"]


@dataclass(frozen=True)
class Negatives:
    """False triples for each triple of a batch; they keep its relation."""

    head: Tensor  # [B, K]
    tail: Tensor  # [B, K]
    replace_head: Tensor | None = None
    """Whether all negatives of a triple have a new head, else a new tail [B]; None: they vary."""
    adversarial: float = 0.0
    """Above 0: the losses of a triple's negatives are weighed by softmax(this · their score)."""

    def scores(self, model: Model, batch: Batch) -> Tensor:
        """Return the scores [B, K] of the negatives of a batch."""
        if self.replace_head is None or self.head.shape[1] == 1:
            return model.score(self.head, batch.relation.unsqueeze(1), self.tail)
        entity = torch.where(self.replace_head.unsqueeze(1), self.head, self.tail)
        return model.score_corrupted(
            self.replace_head, batch.head, batch.relation, batch.tail, entity
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
        """Return the keys of one side."""
        return self.head_key if side is Side.HEAD else self.tail_key

    def corrupt(self, replace_head: Tensor, head: Tensor, tail: Tensor) -> Negatives:
        """Put ``head`` [B, K] or ``tail`` [B, K] into each triple, as ``replace_head`` [B] says.

        Of one negative each, [B] will do.
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


Gather = Callable[[Tensor, Tensor], Tensor]
"""(columns [k, n], row [B]) → the columns at these rows [k, B]."""


def plain_gather(columns: Tensor, row: Tensor) -> Tensor:
    """Return the columns [k, n] at some rows: [k, B]."""
    return columns.index_select(1, row)


class TrainingTriples:
    """The training split as int64 columns; every pass is in a new random order."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        device: torch.device,
        seed: int,
        gather: Gather | None = None,
    ) -> None:
        columns = [*graph.train.T, *(graph.train_keys[side] for side in (Side.HEAD, Side.TAIL))]
        # Columns of their own: those of a table [n, 5] would not lie together in memory.
        self.columns = torch.stack([torch.from_numpy(np.array(c)).long() for c in columns])
        self.columns = self.columns.to(device)  # [5, n]
        self.gather = gather or plain_gather
        self.random = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
        self._order = self._shuffle()

    def __len__(self) -> int:
        return self.columns.shape[1]

    def rows(self, size: int, begin: int = 0) -> Iterator[Tensor]:
        """Yield the row numbers once each, in batches of ``size`` (the last may be smaller).

        Those of a pass that was interrupted begin after the first ``begin`` rows.
        """
        rest = self._order[begin:]
        yield from rest.split(size) if len(rest) else ()
        # The order of the next pass is made while a GPU still works on this one.
        self._order = self._shuffle()

    def checkpoint(self) -> State:
        """Return what the order of this pass and of those to come follows from."""
        return {"random": self._before}

    def restore(self, state: State) -> None:
        """Draw the order of the pass again that was going on."""
        self.random.set_state(state["random"].clone())
        self._order = self._shuffle()

    def _shuffle(self) -> Tensor:
        self._before = self.random.get_state()
        order = torch.randperm(len(self), generator=self.random)
        if self.columns.is_cuda:
            order = order.pin_memory()
        return order.to(self.columns.device, non_blocking=True)

    def batch(self, row: Tensor) -> Batch:
        """Return the triples of some rows [B]."""
        return Batch(*self.gather(self.columns, row).unbind(0))
