"""Losses: of a positive score and those of its negatives, or of the scores of all entities."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.errors import UserError
from nscaching.models import Model

__all__ = [
    "ALL_ENTITIES",
    "LOGISTIC_ZERO",
    "Objective",
    "choose_objective",
    "logistic",
    "margin_ranking",
    "penalty",
]

Objective = Literal["margin", "logistic", "shifted", "1vsall", "kvsall"]

ALL_ENTITIES = ("1vsall", "kvsall")
"""Objectives that need no negatives."""

# The logistic loss of a negative never reaches zero; below this its gradient is under one percent.
LOGISTIC_ZERO = 0.01

# Both take positive [B], negative [B, K] and perhaps weights [B, K] of the negatives; they return
# loss [B] and which still teach something [B].


def margin_ranking(
    positive: Tensor, negative: Tensor, margin: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Eq. 1: Σₖ [γ − f(positive) + f(negativeₖ)]₊."""
    loss = _sum(F.relu(margin - positive.unsqueeze(1) + negative), weight)
    return loss, loss > 0


def logistic(
    positive: Tensor, negative: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Eq. 2: ℓ(+1, f(positive)) + Σₖ ℓ(−1, f(negativeₖ)), with ℓ(α, β) = log(1 + exp(−αβ))."""
    negative_loss = _sum(F.softplus(negative), weight)
    return F.softplus(-positive) + negative_loss, negative_loss > LOGISTIC_ZERO


def _sum(losses: Tensor, weight: Tensor | None) -> Tensor:
    return (losses if weight is None else losses * weight).sum(1)


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
        raise UserError("--penalty-norm n3 is for semantic matching models; give l2")
    without = config.sampler == "none"
    if config.objective == "auto":
        if without:
            return "1vsall"
        if model.family == "semantic":
            return "logistic"
        return "shifted" if config.sampler == "self-adversarial" else "margin"
    if without != (config.objective in ALL_ENTITIES):
        uses = "no negatives: give --sampler none" if not without else "negatives: give a --sampler"
        raise UserError(f"--objective {config.objective} uses {uses}")
    return config.objective
