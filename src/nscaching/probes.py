"""What the paper measures while training."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.models import Model

__all__ = ["EpochMeter"]


class EpochMeter:
    """Means over an epoch, summed on the device so that no step waits for a number."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)  # loss, teaching, gradient
        self.triples = self.steps = 0

    @torch.no_grad()
    def observe(self, loss: Tensor, teaching: Tensor, model: Model) -> None:
        """Take in the losses [B] of a step, which of them are not zero, and the gradient."""
        norms = [torch.linalg.vector_norm(p.grad) for p in model.parameters() if p.grad is not None]
        gradient = torch.linalg.vector_norm(torch.stack(norms))
        self.sums += torch.stack([loss.sum(), teaching.sum().to(loss.dtype), gradient]).double()
        self.triples += len(loss)
        self.steps += 1

    def read(self) -> dict[str, float]:
        """Return mean loss, non-zero-loss ratio (NZL) and mean gradient norm of a step."""
        loss, teaching, gradient = self.sums.tolist()
        return {
            "loss": loss / self.triples,
            "nonzero_loss": teaching / self.triples,
            "gradient_norm": gradient / self.steps,
        }
