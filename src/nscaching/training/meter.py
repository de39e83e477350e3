"""The figures of every epoch: loss, non-zero-loss ratio (NZL), gradient norm, seconds."""

import time
from collections.abc import Callable

import torch

from nscaching.kernels.state import State

COUNTS = ("triples", "steps", "seconds")  # of an epoch, besides the sums


class EpochMeter:
    """Means over an epoch; the sums stay on the device, so that no step waits for a number."""

    def __init__(self, device: torch.device, compile_seconds: Callable[[], float]) -> None:
        self.compile_seconds = compile_seconds
        """Returns the seconds of compiling so far, which do not count as training time."""
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
        """Return the seconds of this epoch so far."""
        before, self._since = self._since, self._now()
        self.seconds += self._since - before
        return self.seconds

    def _now(self) -> float:
        return time.perf_counter() - self.compile_seconds()

    def count(self, triples: int) -> None:
        """Count a step, on so many triples, that has added to the sums."""
        self.triples += triples
        self.steps += 1
        self.clock()

    def first_bad_step(self) -> int:
        """Return the number of the first step with a non-finite loss; 0: there is none."""
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
        return {"sums": self.sums, **{name: getattr(self, name) for name in COUNTS}}

    def restore(self, state: State) -> None:
        self.sums.copy_(state["sums"])
        for name in COUNTS:
            setattr(self, name, state[name])
