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
    """The training split as int32 columns; every pass has a new random order.

    The order is a function of seed, pass and place, which kernels compute where they need the rows:
    no order is stored, and a step takes as long with any number of triples.
    """

    def __init__(
        self, graph: KnowledgeGraph, device: torch.device, seed: int, kernels: Kernels
    ) -> None:
        columns = [*graph.train.T, *(graph.train_keys[side] for side in (Side.HEAD, Side.TAIL))]
        # Each column contiguous in memory, which the columns of a table [n, 5] would not be.
        self.columns = torch.from_numpy(np.stack(columns, dtype=np.int32)).to(device)  # [5, n]
        self.seed, self.kernels = seed, kernels
        self.taken = torch.zeros((), dtype=torch.int64, device=device)  # so far, in all passes

    def __len__(self) -> int:
        return self.columns.shape[1]

    def sizes(self, size: int, begin: int = 0) -> Iterator[int]:
        """Yield the sizes of batches of a pass after its first ``begin`` triples."""
        for place in range(begin, len(self), size):
            yield min(size, len(self) - place)

    def take(self, size: int) -> tuple[Tensor, Batch]:
        """Return the rows [size] of the triples that come next, and the triples."""
        row, *columns = self.kernels.take(self.columns, self.seed, self.taken, size).unbind(0)
        return row, Batch(*columns)

    def go_to(self, passes: int, triples: int) -> None:
        """Let the triple come next that comes after whole passes and some triples of another."""
        self.taken.fill_(passes * len(self) + triples)


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
