"""The processes of a training: who they are, and what moves between them, in bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


WISHES = ("stop", "save")  # what a rank may wish for: the end of the run, or a checkpoint


@dataclass
class Traffic:
    """What this rank has sent to others."""

    calls: int = 0
    bytes: int = 0


@dataclass
class World:
    """All ranks of a training; one rank alone sends nothing."""

    rank: int = 0
    size: int = 1
    traffic: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    """By kind, since the start."""
    wishes: set[str] = field(default_factory=set)
    agreed: set[str] = field(default_factory=set)
    """The wishes of any rank before the last step: the same on all ranks."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and speaks to the user."""
        return self.rank == 0

    def exchange(self, rows: Tensor, sent: Sequence[int], got: Sequence[int], kind: str) -> Tensor:
        """Send consecutive rows to each rank, ``sent`` says how many; return what the others send.

        A gradient by the result goes back to those who sent the rows.
        """
        if self.size == 1:
            return rows
        result: Tensor = _Exchange.apply(rows, self, sent, got, kind)  # type: ignore[no-untyped-call]
        return result

    def counts(self, sent: Tensor) -> Tensor:
        """Tell each rank a row of numbers [ranks, k]; return what the others tell."""
        if self.size == 1:
            return sent
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent.contiguous())
        self.count("counts", sent.nbytes * (self.size - 1) // self.size)
        return got

    def sum(self, tensor: Tensor, kind: str) -> Tensor:
        """Add the tensors of all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
            # A ring sends each part once around to be added, and once again when it is whole.
            self.count(kind, 2 * tensor.nbytes * (self.size - 1) // self.size)
        return tensor

    def tally(self, figures: Tensor) -> Tensor:
        """Add up the figures [k] of a step, and agree on what any rank wishes for after it."""
        wishes = [float(name in self.wishes) for name in WISHES]
        both = torch.cat([figures, figures.new_tensor(wishes)])
        *sums, stop, save = self.sum(both, "figures").split([len(figures), *(1 for _ in WISHES)])
        self.agreed = {n for n, wish in zip(WISHES, (stop, save), strict=True) if wish.item()}
        return sums[0]

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """Return the values, which can be pickled, of all ranks."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def count(self, kind: str, sent: int) -> None:
        self.traffic[kind].calls += 1
        self.traffic[kind].bytes += sent


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World, *how: Any) -> Tensor:  # noqa: ANN401
        sent, got, kind = how
        ctx.world, ctx.how, ctx.kind = world, (got, sent), kind
        return _swap(rows, world, sent, got, kind)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # noqa: ANN401
        by_rows = _swap(gradient.contiguous(), ctx.world, *ctx.how, f"{ctx.kind}, gradients")
        return by_rows, None, None, None, None


def _swap(
    rows: Tensor, world: World, sent: Sequence[int], got: Sequence[int], kind: str
) -> Tensor:
    result = rows.new_empty(sum(got), *rows.shape[1:])
    dist.all_to_all_single(result, rows.contiguous(), list(got), list(sent))
    others = len(rows) - sent[world.rank]
    world.count(kind, others * rows[:1].nbytes if len(rows) else 0)
    return result
