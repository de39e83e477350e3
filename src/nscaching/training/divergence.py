"""The error of a run that diverged: where the loss became non-finite, and the likely cause."""

import math
from typing import Any

from nscaching.config import TrainConfig
from nscaching.errors import Diverged, flag
from nscaching.training.meter import EpochMeter

# The sums of a batch are 32-bit numbers, which end at 3e38.
LARGE_MARGIN = 1e30
# Beyond these strengths a penalty pulls harder than the triples do.
STRONG_PENALTY = {"l2": 10.0, "n3": 1.0}


def check_finite(config: TrainConfig, record: dict[str, Any], meter: EpochMeter) -> None:
    """Raise ``Diverged`` if a loss of the epoch that has just ended is non-finite."""
    epoch = record["epoch"]
    if bad := meter.first_bad_step():
        where = f"the loss is {record['loss']} in epoch {epoch}, since batch {bad} of {meter.steps}"
        raise Diverged(f"{where}: {_cause(config, first=epoch == 1 and bad == 1)}")
    if not math.isfinite(record.get("generator_loss", 0.0)):
        remedy = f"try a lower {flag('generator_lr')}"
        raise Diverged(f"the generator diverged in epoch {epoch}: {remedy}")


def _cause(config: TrainConfig, first: bool) -> str:
    if config.margin > LARGE_MARGIN:
        return f"{flag('margin')} {config.margin:g} is too large for sums of 32-bit numbers"
    if first:  # no step has moved the parameters yet, and the start was checked
        return f"{config.model} gives scores that are not finite from the start, before any step"
    penalty, lower = config.penalty or 0.0, f"try a lower one, or a lower {flag('lr')}"
    if penalty >= STRONG_PENALTY[config.penalty_norm]:
        return f"probably {flag('penalty')} {penalty:g} is too strong: {lower}"
    return f"probably {flag('lr')} {config.lr:g} is too high: try a lower {flag('lr')}"
