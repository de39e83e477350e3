"""The processes of a training: who they are, and what moves between them, in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store

PLACE, FAILED, RUN = "place", "failed", "run"  # names of words in stores
MOMENT = 0.02  # seconds between two looks at a store
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
    launch: Store | None = None
    """What outlives a restart of the processes, where torchrun has it."""
    backend: str = "gloo"
    on_host: bool = False
    """Whether tensors of GPUs travel by way of host memory: several ranks share a GPU."""
    traffic: Traffic = field(default_factory=dict)
    """Since the last ``take_traffic``."""
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

    def begin(
        self, rows: Tensor, out: Tensor, sent: Sequence[int], got: Sequence[int], kind: str
    ) -> Callable[[], None]:
        """Begin to exchange rows, without gradients, to ``out``; return what waits for the end.

        One exchange has to end before the next one begins.
        """
        others = len(rows) - sent[self.rank]
        self.count(kind, others * rows[:1].nbytes if len(rows) else 0)
        here, there = self._travelling(rows), self._travelling(out)
        work = dist.all_to_all_single(there, here, list(got), list(sent), async_op=True)
        assert work is not None

        def end() -> None:
            work.wait()
            if there is not out:
                out.copy_(there)

        return end

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
            dist.all_reduce(here)
            if here is not tensor:
                tensor.copy_(here)
            # A ring sends each part once around to be added, and once again when it is whole.
            self.count(kind, 2 * tensor.nbytes * (self.size - 1) // self.size)
        return tensor

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

    def remember_run(self, path: Path) -> None:
        """Leave word for restarted processes that the run in a folder is theirs."""
        if self.launch is not None:
            self.launch.set(RUN, str(path.absolute()))

    def own_run(self) -> Path | None:
        """Return the folder that processes before a restart began, the same on all ranks."""
        path = read_word(self.launch, RUN) if self.leads else None
        found = self.gather(path)[0]
        return None if found is None else Path(found)

    def meet(self, where: str) -> None:
        """Wait for all ranks, however long they take, such as to read the data."""
        if self.store is None:
            self.wait()
            return
        self.store.set(f"{where} {self.rank}", "")
        ranks = range(self.size)
        while not self.store.check([f"{where} {rank}" for rank in ranks]):
            if any(self.store.check([f"{FAILED} {rank}"]) for rank in ranks):
                raise RuntimeError("the connection to a process is lost")
            time.sleep(MOMENT)

    def leave_place(self, place: str) -> None:
        """Leave word on how far this rank is, for a message if it is lost."""
        if self.store is not None:
            self.store.set(f"{PLACE} {self.rank}", place)

    def read(self, name: str) -> str | None:
        return read_word(self.store, name)

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


def read_word(store: Store | None, name: str) -> str | None:
    """Return what was left in a store under a name."""
    try:
        if store is not None and store.check([name]):
            return str(store.get(name).decode())
    except RuntimeError:  # the process that has the store is gone
        pass
    return None


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


def _swap(rows: Tensor, world: World, sent: Sequence[int], got: Sequence[int], kind: str) -> Tensor:
    out = rows.new_empty(sum(got), *rows.shape[1:])
    world.begin(rows, out, sent, got, kind)()
    return out
