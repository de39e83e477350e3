"""Losses of a positive score and the scores of its negatives."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.models import Model

__all__ = ["LOGISTIC_ZERO", "choose_objective", "logistic", "margin_ranking", "penalty"]

# Both take positive [B], negative [B, K]; they return loss [B] and which still teach something [B].

# The logistic loss of a negative never reaches zero; below this its gradient is under one percent.
LOGISTIC_ZERO = 0.01


def margin_ranking(positive: Tensor, negative: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Eq. 1: Σₖ [γ − f(positive) + f(negativeₖ)]₊."""
    loss = F.relu(margin - positive.unsqueeze(1) + negative).sum(1)
    return loss, loss > 0


def logistic(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 2: ℓ(+1, f(positive)) + Σₖ ℓ(−1, f(negativeₖ)), with ℓ(α, β) = log(1 + exp(−αβ))."""
    negative_loss = F.softplus(negative).sum(1)
    return F.softplus(-positive) + negative_loss, negative_loss > LOGISTIC_ZERO


def penalty(config: TrainConfig, model: Model) -> float:
    """Return the L2 penalty λ, by the model's family where the configuration leaves it open.

    Translational models scale their vectors to unit length, which a penalty cannot change.
    """
    if config.penalty is not None:
        return config.penalty
    return 0.1 if model.family == "semantic" else 0.0


def choose_objective(config: TrainConfig, model: Model) -> Literal["margin", "logistic"]:
    """Return the loss that the configuration asks for, by the model's family when it says auto."""
    if config.objective != "auto":
        return config.objective
    return "margin" if model.family == "translational" else "logistic"
