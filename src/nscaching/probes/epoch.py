"""What every epoch measures: loss, non-zero-loss ratio (NZL) and gradient norm."""

from __future__ import annotations

import torch

__all__ = ["EpochMeter"]


class EpochMeter:
    """Means over an epoch, summed on the device so that no step waits for a number."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        """Loss, triples that teach something, gradient norm, good steps: each step adds its own."""
        self.reset()

    def reset(self) -> None:
        """Begin an epoch."""
        self.sums.zero_()
        self.triples = self.steps = 0

    def count(self, triples: int) -> None:
        """Hear that a step on so many triples has added to the sums."""
        self.triples += triples
        self.steps += 1

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
