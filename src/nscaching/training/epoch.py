"""An epoch: the training triples in shuffled batches; loss, gradient norm, seconds and others."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import Diverged, flag
from nscaching.kernels import Batch, Kernels, State

# The sums of a batch are 32-bit numbers, which end at 3e38.
LARGE_MARGIN = 1e30
# Beyond these strengths a penalty pulls harder than the triples do.
STRONG_PENALTY = {"l2": 10.0, "n3": 1.0}

COUNTS = ("triples", "steps", "seconds")  # of an epoch, besides the sums


class TrainingTriples:
    """The training split as int64 columns; every pass has a new random order."""

    def __init__(
        self, graph: KnowledgeGraph, device: torch.device, seed: int, kernels: Kernels
    ) -> None:
        columns = [*graph.train.T, *(graph.train_keys[side] for side in (Side.HEAD, Side.TAIL))]
        # Each column contiguous in memory, which the columns of a table [n, 5] would not be.
        self.columns = torch.from_numpy(np.stack(columns, dtype=np.int64)).to(device)  # [5, n]
        self.gather = kernels.gather
        self.random = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
        self._order = self._shuffle()

    def __len__(self) -> int:
        return self.columns.shape[1]

    def rows(self, size: int, begin: int = 0) -> Iterator[Tensor]:
        """Yield every row number once, in batches of ``size`` (the last may be smaller).

        An interrupted pass continues after its first ``begin`` rows.
        """
        rest = self._order[begin:]
        yield from rest.split(size) if len(rest) else ()
        # Shuffled here, the next pass is ready while a GPU still works on this one.
        self._order = self._shuffle()

    def checkpoint(self) -> State:
        """Return the random state that this pass and all later ones follow from."""
        return {"random": self._before}

    def restore(self, state: State) -> None:
        self.random.set_state(state["random"].clone())
        self._order = self._shuffle()

    def _shuffle(self) -> Tensor:
        self._before = self.random.get_state()
        order = torch.randperm(len(self), generator=self.random)
        if self.columns.is_cuda:
            order = order.pin_memory()
        return order.to(self.columns.device, non_blocking=True)

    def batch(self, row: Tensor) -> Batch:
        return Batch(*self.gather(self.columns, row).unbind(0))


class EpochMeter:
    """Means over an epoch; the sums stay on the device, so that no step waits for a number."""

    def __init__(self, device: torch.device, compile_seconds: Callable[[], float]) -> None:
        self.compile_seconds = compile_seconds  # so far, which do not count as training time
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        """Loss, triples with a non-zero loss, gradient norm, steps with a finite loss."""
        self.reset()

    def reset(self) -> None:
        self.sums.zero_()
        self.triples = self.steps = 0
        self.seconds = 0.0
        self.start_clock()

    def start_clock(self) -> None:
        """Count time from now on, and leave out the time since the last step."""
        self._since = self._now()

    def clock(self) -> float:
        before, self._since = self._since, self._now()
        self.seconds += self._since - before
        return self.seconds

    def _now(self) -> float:
        return time.perf_counter() - self.compile_seconds()

    def count(self, triples: int) -> None:
        self.triples += triples
        self.steps += 1
        self.clock()

    def read(self) -> dict[str, float]:
        """Return mean loss, non-zero-loss ratio (NZL) and mean gradient norm of a step."""
        loss, teaching, gradient, _ = self.sums.tolist()
        return {
            "loss": loss / self.triples,
            "nonzero_loss": teaching / self.triples,
            "gradient_norm": gradient / self.steps,
        }

    def check_finite(self, config: TrainConfig, record: dict[str, Any]) -> None:
        epoch, bad = record["epoch"], int(self.sums[3].item()) + 1  # the first step that was bad
        if bad <= self.steps:
            where = f"in epoch {epoch}, since batch {bad} of {self.steps}"
            cause = likely_cause(config, first=epoch == 1 and bad == 1)
            raise Diverged(f"the loss is {record['loss']} {where}: {cause}")
        if not math.isfinite(record.get("generator_loss", 0.0)):
            remedy = f"try a lower {flag('generator_lr')}"
            raise Diverged(f"the generator diverged in epoch {epoch}: {remedy}")

    def checkpoint(self) -> State:
        return {"sums": self.sums, **{name: getattr(self, name) for name in COUNTS}}

    def restore(self, state: State) -> None:
        self.sums.copy_(state["sums"])
        for name in COUNTS:
            setattr(self, name, state[name])


def likely_cause(config: TrainConfig, first: bool) -> str:
    if config.margin > LARGE_MARGIN:
        return f"{flag('margin')} {config.margin:g} is too large for sums of 32-bit numbers"
    if first:  # no step has moved the parameters yet, and the start was checked
        return f"{config.model} gives scores that are not finite from the start, before any step"
    penalty, lower = config.penalty or 0.0, f"try a lower one, or a lower {flag('lr')}"
    if penalty >= STRONG_PENALTY[config.penalty_norm]:
        return f"probably {flag('penalty')} {penalty:g} is too strong: {lower}"
    return f"probably {flag('lr')} {config.lr:g} is too high: try a lower {flag('lr')}"
