"""The error of a run that diverged: where the loss became non-finite, and the likely cause."""

import math
from typing import Any

from nscaching.config import TrainConfig
from nscaching.errors import Diverged, flag

# The sums of a batch are 32-bit numbers, which end at 3e38.
LARGE_MARGIN = 1e30
# Beyond these strengths a penalty pulls harder than the triples do.
STRONG_PENALTY = {"l2": 10.0, "n3": 1.0}


def check_finite(config: TrainConfig, record: dict[str, Any], bad: int, steps: int) -> None:
    """Raise ``Diverged`` if a loss of an epoch is non-finite, from step ``bad`` on (0: none)."""
    epoch = record["epoch"]
    if bad:
        where = f"the loss is {record['loss']} in epoch {epoch}, since batch {bad} of {steps}"
        raise Diverged(f"{where}: {_cause(config, first=epoch == 1 and bad == 1)}")
    if not math.isfinite(record.get("generator_loss", 0.0)):
        raise Diverged(
            f"the generator diverged in epoch {epoch}: try a lower {flag('generator_lr')}"
        )


def _cause(config: TrainConfig, first: bool) -> str:
    if config.margin > LARGE_MARGIN:
        return f"{flag('margin')} {config.margin:g} is too large for sums of 32-bit numbers"
    if first:  # no step has moved the parameters yet, and the start was checked
        return f"{config.model} gives scores that are not finite from the start, before any step"
    penalty = config.penalty or 0.0
    if penalty >= STRONG_PENALTY[config.penalty_norm]:
        return (
            f"probably {flag('penalty')} {penalty:g} is too strong: try a lower one, or a "
            f"lower {flag('lr')}"
        )
    return f"probably {flag('lr')} {config.lr:g} is too high: try a lower {flag('lr')}"
