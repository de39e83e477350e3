"""The training triples on a device, in shuffled batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph

__all__ = ["Batch", "Negatives", "TrainingTriples"]


@dataclass(frozen=True)
class Batch:
    """Some training triples: ids [B] each, and their row numbers in the training split."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    row: Tensor

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Negatives:
    """False triples for each triple of a batch; they keep its relation."""

    head: Tensor  # [B, K]
    tail: Tensor  # [B, K]


class TrainingTriples:
    """The training split as int64 columns; every pass is in a new random order."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device, seed: int) -> None:
        # Columns of their own: those of a table [n, 3] would not lie together in memory.
        self.columns = torch.from_numpy(graph.train).long().T.contiguous().to(device)  # [3, n]
        self.order = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device

    def __len__(self) -> int:
        return self.columns.shape[1]

    def rows(self, size: int) -> Iterator[Tensor]:
        """Yield the row numbers once each, in batches of ``size`` (the last may be smaller)."""
        order = torch.randperm(len(self), generator=self.order)
        yield from order.to(self.columns.device).split(size)

    def batch(self, row: Tensor) -> Batch:
        """Return the triples of some rows [B]."""
        head, relation, tail = self.columns.index_select(1, row).unbind(0)
        return Batch(head, relation, tail, row)
