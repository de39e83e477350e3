"""The training triples on a device, in shuffled batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph

__all__ = ["Batch", "TrainingTriples"]


@dataclass(frozen=True)
class Batch:
    """Some training triples: ids [B] each, and their row numbers in the training split."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    row: Tensor

    def __len__(self) -> int:
        return len(self.row)


class TrainingTriples:
    """The training split as int64 tensors; every pass is in a new random order."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device, seed: int) -> None:
        self.triples = torch.from_numpy(graph.train).long().to(device)
        self.order = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device

    def __len__(self) -> int:
        return len(self.triples)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the triples once each, in batches of ``size`` (the last may be smaller)."""
        rows = torch.randperm(len(self), generator=self.order).to(self.triples.device)
        for row in rows.split(size):
            head, relation, tail = self.triples[row].unbind(1)
            yield Batch(head, relation, tail, row)
