"""Losses of a positive score and the scores of its negatives."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Objective = Literal["margin", "logistic", "shifted", "softmax", "1vsall", "kvsall"]

ALL_ENTITIES = ("1vsall", "kvsall")  # objectives that need no negatives

# The logistic loss of a negative never reaches zero; below this its gradient is under one percent.
LOGISTIC_ZERO = 0.01


def losses(
    objective: Objective, margin: float, positive: Tensor, negative: Tensor, adversarial: float = 0
) -> tuple[Tensor, Tensor]:
    """Return losses [B] of scores [B] and [B, K], and which of them still teach something [B].

    - margin, Eq. 1: Σₖ [γ − f(positive) + f(negativeₖ)]₊
    - logistic, Eq. 2: ℓ(+1, f(positive)) + Σₖ ℓ(−1, f(negativeₖ)), ℓ(α, β) = log(1 + exp(−αβ))
    - shifted: the logistic loss of f + γ

    Above 0, ``adversarial`` weighs the terms of the sum by softmax(this · f(negativeₖ)).
    """
    weight = torch.softmax(adversarial * negative.detach(), 1) if adversarial else None
    if objective == "shifted":
        positive, negative = positive + margin, negative + margin
    if objective == "margin":
        each = F.relu(margin - positive.unsqueeze(1) + negative)
    else:
        each = F.softplus(negative)
    total = (each if weight is None else each * weight).sum(1)
    if objective == "margin":
        return total, total > 0
    return F.softplus(-positive) + total, total > LOGISTIC_ZERO
