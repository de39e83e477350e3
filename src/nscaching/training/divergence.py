"""What to say when the loss is no number any more: where it happened, and what probably did it."""

from __future__ import annotations

from nscaching.config import TrainConfig
from nscaching.errors import Diverged, flag

__all__ = ["diverged"]

# Sums of a batch are made in 32-bit numbers, which end at 3e38.
LARGE_MARGIN = 1e30
# Beyond them a penalty pulls harder than the triples do.
STRONG_PENALTY = {"l2": 10.0, "n3": 1.0}


def diverged(config: TrainConfig, loss: float, epoch: int, step: int, steps: int) -> Diverged:
    """Build the error for a loss that is not finite since a step (1, 2, …) of an epoch."""
    where = f"the loss is {loss} in epoch {epoch}, since batch {step} of {steps}"
    return Diverged(f"{where}: {_cause(config, first=epoch == 1 and step == 1)}")


def _cause(config: TrainConfig, first: bool) -> str:
    if config.margin > LARGE_MARGIN:
        return f"{flag('margin')} {config.margin:g} is too large for sums of 32-bit numbers"
    if first:  # no step has moved the parameters yet, and what they start from was checked
        return f"{config.model} gives scores that are not finite from the start, before any step"
    penalty = config.penalty or 0.0
    if penalty >= STRONG_PENALTY[config.penalty_norm]:
        return (
            f"probably {flag('penalty')} {penalty:g} is too strong: try a lower one, or a "
            f"lower {flag('lr')}"
        )
    return f"probably {flag('lr')} {config.lr:g} is too high: try a lower {flag('lr')}"
