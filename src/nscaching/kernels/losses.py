"""Losses of a positive score and the scores of its negatives."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

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
