"""What every epoch measures: loss, non-zero-loss ratio (NZL) and gradient norm."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from nscaching.kernels.state import State

__all__ = ["EpochMeter"]


class EpochMeter:
    """Means over an epoch, summed on the device so that no step waits for a number."""

    def __init__(
        self, device: torch.device, compile_seconds: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.compile_seconds = compile_seconds
        """Returns how long kernels have been compiled so far: that is no training."""
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        """Loss, triples that teach something, gradient norm, good steps: each step adds its own."""
        self.reset()

    def reset(self) -> None:
        """Forget the epoch."""
        self.sums.zero_()
        self.triples = self.steps = 0
        self.seconds = 0.0
        self.start_clock()

    def start_clock(self) -> None:
        """Let time count from now on; what passed since the last step is left out."""
        self._since = self._now()

    def clock(self) -> float:
        """Return the seconds of this epoch so far."""
        before, self._since = self._since, self._now()
        self.seconds += self._since - before
        return self.seconds

    def _now(self) -> float:
        return time.perf_counter() - self.compile_seconds()

    def count(self, triples: int) -> None:
        """Hear that a step on so many triples has added to the sums."""
        self.triples += triples
        self.steps += 1
        self.clock()

    def first_bad_step(self) -> int:
        """Return the number of the first step whose loss was not finite; 0: none was."""
        good = int(self.sums[3].item())
        return good + 1 if good < self.steps else 0

    def read(self) -> dict[str, float]:
        """Return mean loss, non-zero-loss ratio (NZL) and mean gradient norm of a step."""
        loss, teaching, gradient, _ = self.sums.tolist()
        return {
            "loss": loss / self.triples,
            "nonzero_loss": teaching / self.triples,
            "gradient_norm": gradient / self.steps,
        }

    def checkpoint(self) -> State:
        """Return what the epoch has come to."""
        plain = {"triples": self.triples, "steps": self.steps, "seconds": self.seconds}
        return {"sums": self.sums, **plain}

    def restore(self, state: State) -> None:
        """Go on with an epoch."""
        self.sums.copy_(state["sums"])
        self.triples, self.steps = state["triples"], state["steps"]
        self.seconds = state["seconds"]
