"""Which loss and which penalty a training has, where the configuration leaves them open."""

from __future__ import annotations

from nscaching.config import TrainConfig
from nscaching.errors import UserError, flag
from nscaching.kernels.losses import ALL_ENTITIES, Objective
from nscaching.models import Model

__all__ = ["choose_objective", "penalty"]


def penalty(config: TrainConfig, model: Model) -> float:
    """Return the penalty λ, by the model's family where the configuration leaves it open.

    Translational models scale their vectors to unit length, which a penalty cannot change.
    """
    if config.penalty is not None:
        return config.penalty
    with_negatives = config.sampler != "none"
    return 0.1 if model.family == "semantic" and with_negatives else 0.0


def choose_objective(config: TrainConfig, model: Model | type[Model]) -> Objective:
    """Return the loss that the configuration asks for; auto: by the model's family and sampler."""
    if config.penalty_norm == "n3" and model.family != "semantic":
        raise UserError(f"{flag('penalty_norm')} n3 is for semantic matching models; give l2")
    without = config.sampler == "none"
    if config.objective == "auto":
        if without:
            return "1vsall"
        if model.family == "semantic":
            return "logistic"
        return "shifted" if config.sampler == "self-adversarial" else "margin"
    if without != (config.objective in ALL_ENTITIES):
        uses = f"negatives: give a {flag('sampler')}"
        if not without:
            uses = f"no negatives: give {flag('sampler')} none"
        raise UserError(f"{flag('objective')} {config.objective} uses {uses}")
    return config.objective
