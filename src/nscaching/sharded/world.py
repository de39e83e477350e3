"""The processes of a training: who they are, and what moves between them, in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store

from nscaching.sharded.board import AWAKE, Board, Bytes, give_way, new_board

FEW = 8  # ranks which add up tensors by reading those of all others
WISHES = ("stop", "save")  # what a rank may wish for: the end of the run, or a checkpoint


Traffic = dict[str, dict[str, int]]
"""What a rank has sent to others, by kind: ``calls`` and ``bytes``."""


@dataclass
class World:
    """All ranks of a training; one rank alone sends nothing."""

    rank: int = 0
    size: int = 1
    store: Store | None = None
    """Where ranks leave words for each other."""
    on_host: bool = False
    """Whether tensors of GPUs travel by way of host memory: several ranks share a GPU."""
    board: Board | None = None
    """Where messages are in memory, if all ranks are on one machine."""
    traffic: Traffic = field(default_factory=dict)
    """Since the last ``take_traffic``."""
    wishes: set[str] = field(default_factory=set)
    agreed: set[str] = field(default_factory=set)
    """The wishes of any rank before the last step: the same on all ranks."""

    @property
    def backend(self) -> str:
        return str(dist.get_backend())

    def share_memory(self, patience: float) -> Self:
        """Send messages by shared memory where that can be done."""
        self.board = new_board(self, patience)
        return self

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

    def begin(
        self, rows: Tensor, out: Tensor, sent: Sequence[int], got: Sequence[int], kind: str
    ) -> Callable[[], None]:
        """Begin to exchange rows, without gradients, to ``out``; return what waits for the end.

        One exchange has to end before the next one begins.
        """
        others = len(rows) - sent[self.rank]
        self.count(kind, others * rows[:1].nbytes if len(rows) else 0)
        here, result = self._travelling(rows), self._travelling(out)
        how = here, result, sent, got
        wait = self._begin_socket(*how) if self.board is None else self._begin_board(*how)

        def end() -> None:
            wait()
            if result is not out:
                out.copy_(result)

        return end

    def _begin_socket(
        self, rows: Tensor, out: Tensor, sent: Sequence[int], got: Sequence[int]
    ) -> Callable[[], None]:
        group = dist.group.WORLD
        assert group is not None
        # As all_to_all_single, which looks at more than it sends where a message is small.
        work = group.alltoall_base(out, rows, list(got), list(sent))
        return lambda: _wait(work, out)

    def _begin_board(
        self, rows: Tensor, out: Tensor, sent: Sequence[int], got: Sequence[int]
    ) -> Callable[[], None]:
        board, size = self.board, rows[:1].numel() * rows.element_size()
        assert board is not None
        ends = [size * end for end in accumulate(sent)]
        message = as_bytes(rows)
        board.write(message, [*pairwise([0, *ends])])

        def wait() -> None:
            parts = [part for rank in range(self.size) if (part := board.read(rank)) is not None]
            if len(parts) < self.size:  # all ranks see that
                self._begin_socket(rows, out, sent, got)()
            elif len(out):
                np.concatenate(parts, out=as_bytes(out))

        return wait

    def counts(self, sent: Tensor) -> Tensor:
        """Tell each rank a row of numbers [ranks, …]; return what the others tell."""
        if self.size == 1:
            return sent
        got = torch.empty_like(sent)
        self.begin(sent, got, [1] * self.size, [1] * self.size, "counts")()
        return got

    def sum(self, tensor: Tensor, kind: str) -> Tensor:
        """Add the tensors of all ranks, in place."""
        if self.size > 1:
            here = self._travelling(tensor)
            if not self._sum_on_board(here):
                _wait(dist.all_reduce(here, async_op=True), here)
            if here is not tensor:
                tensor.copy_(here)
            # A ring sends each part once around to be added, and once again when it is whole.
            self.count(kind, 2 * tensor.nbytes * (self.size - 1) // self.size)
        return tensor

    def _sum_on_board(self, tensor: Tensor) -> bool:
        if self.board is None or self.size > FEW:
            return False
        message = as_bytes(tensor)
        if not self.board.holds(len(message)):
            return False
        self.board.write(message, [(0, len(message))] * self.size)
        total, numbers = tensor.numpy(), len(message)
        for rank in range(self.size):  # in one order on all ranks
            part = self.board.read(rank)
            assert part is not None
            same = part[:numbers].view(total.dtype).reshape(total.shape)
            total[...] = same if rank == 0 else total + same
        return True

    def tally(self, figures: Tensor, kind: str = "figures") -> Tensor:
        """Add up the figures [k] of a step, and agree on what any rank wishes for after it."""
        wishes = [float(name in self.wishes) for name in WISHES]
        both = torch.cat([figures, figures.new_tensor(wishes)])
        self.sum(both, kind)
        agreed = zip(WISHES, both[len(figures) :].tolist(), strict=True)
        self.agreed = {name for name, wishes in agreed if wishes}
        return both[: len(figures)]

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """Return the values, which can be pickled, of all ranks."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def bring(self, tensor: Tensor | None, like: Tensor, rank: int) -> Tensor | None:
        """Bring a tensor of a rank, which looks ``like`` another one, to the leading rank."""
        if rank == 0 or self.rank not in (0, rank):
            return tensor if self.leads else None
        if tensor is not None:
            dist.send(self._travelling(tensor), 0)
            self.count("whole tables", tensor.nbytes)
            return None
        got = torch.empty_like(like, device="cpu" if self.on_host else like.device)
        dist.recv(got, rank)
        return got

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def leave_place(self, place: str) -> None:
        """Leave word on how far this rank is, for a message if it is lost."""
        if self.store is not None:
            self.store.set(f"place {self.rank}", place)

    def read(self, name: str) -> str | None:
        """Return the words that were left under a name."""
        try:
            if self.store is not None and self.store.check([name]):
                return str(self.store.get(name).decode())
        except RuntimeError:  # the process that has the store is gone
            pass
        return None

    def _travelling(self, tensor: Tensor) -> Tensor:
        return tensor.cpu().contiguous() if self.on_host else tensor.contiguous()

    def count(self, kind: str, sent: int) -> None:
        so_far = self.traffic.setdefault(kind, {"calls": 0, "bytes": 0})
        so_far["calls"] += 1
        so_far["bytes"] += sent

    def take_traffic(self) -> Traffic:
        """Return the calls of a rank and the bytes of all ranks since the last time."""
        mine, self.traffic = self.traffic, {}
        total: Traffic = {}
        for part in self.gather(mine):
            for kind, each in part.items():
                so_far = total.setdefault(kind, {"calls": 0, "bytes": 0})
                so_far["calls"] = max(so_far["calls"], each["calls"])
                so_far["bytes"] += each["bytes"]
        return total


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World, *how: Any) -> Tensor:  # noqa: ANN401
        sent, got, kind = how
        ctx.world, ctx.how, ctx.kind = world, (got, sent), kind
        return _swap(rows, world, sent, got, kind)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # noqa: ANN401
        sent, got = ctx.how
        by_rows = _swap(gradient, ctx.world, sent, got, f"{ctx.kind}, gradients")
        return by_rows, None, None, None, None


def _wait(work: dist.Work, travelling: Tensor) -> None:
    """Wait awake for a while; see ``give_way``."""
    end = time.perf_counter() + AWAKE
    while travelling.is_cpu and not work.is_completed() and time.perf_counter() < end:
        give_way()
    work.wait()


def as_bytes(tensor: Tensor) -> Bytes:
    return tensor.detach().numpy().reshape(-1).view(np.uint8)


def _swap(rows: Tensor, world: World, sent: Sequence[int], got: Sequence[int], kind: str) -> Tensor:
    out = rows.new_empty(sum(got), *rows.shape[1:])
    world.begin(rows, out, sent, got, kind)()
    return out
