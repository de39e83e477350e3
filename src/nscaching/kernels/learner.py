"""The gradient step: scores, loss, gradients and Adam, by autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nscaching.batches import Batch, Negatives
from nscaching.models import Model
from nscaching.objectives import logistic, margin_ranking

__all__ = ["BETAS", "EPSILON", "AutogradLearner", "Learner", "Learning"]

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's, as its authors recommend


@dataclass(frozen=True)
class Learning:
    """How a model learns from a batch."""

    objective: Literal["margin", "logistic"]
    margin: float
    lr: float
    weight_decay: float
    rows: bool = False
    """Whether Adam moves only the rows that have a gradient; else all, by their momentum."""


class Learner(ABC):
    """Makes gradient steps on a model's parameters."""

    @abstractmethod
    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch; add loss, count of teaching triples, gradient norm to sums [3]."""

    def reload(self) -> None:  # noqa: B027  (most keep nothing of them)
        """Hear that the parameters were changed from outside."""


class AutogradLearner(Learner):
    """Any model: torch's autograd and torch's Adam."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning = model, learning
        self.optimizer: torch.optim.Adam | RowAdam
        if learning.rows:
            self.optimizer = RowAdam(model.parameters(), learning)
            return
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=learning.lr,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=learning.weight_decay,
            fused=True,
            capturable=model.entity.device.type == "cuda",
        )

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Return the losses [B] and which of them still teach something [B]."""
        positive = self.model.score(batch.head, batch.relation, batch.tail)
        relation = batch.relation.unsqueeze(1)
        negative = self.model.score(negatives.head, relation, negatives.tail)
        if self.learning.objective == "margin":
            return margin_ranking(positive, negative, self.learning.margin)  # Eq. 1
        return logistic(positive, negative)  # Eq. 2

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch."""
        loss, teaching = self.loss(batch, negatives)
        self.optimizer.zero_grad()
        loss.sum().backward()
        with torch.no_grad():
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.linalg.vector_norm(
                torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
            )
            sums += torch.stack([loss.detach().sum(), teaching.sum(), norm]).double()
        self.optimizer.step()


class RowAdam:
    """Adam that moves only the rows with a gradient: the momentum of the others waits.

    Not the same as Adam, which goes on moving a row by its momentum, and decays it, in steps that
    have no gradient for it. On graphs of very many entities it is far cheaper.
    """

    def __init__(self, tables: Iterable[Tensor], learning: Learning) -> None:
        self.learning, self.steps = learning, 0
        self.state = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in tables]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for table, _, _ in self.state:
            table.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the rows."""
        self.steps += 1
        (beta_1, beta_2), weight_decay = BETAS, self.learning.weight_decay
        size = self.learning.lr / (1 - beta_1**self.steps)
        for table, mean, square in self.state:
            assert table.grad is not None
            row = table.grad.any(1).nonzero().squeeze(1)
            gradient = table.grad[row] + weight_decay * table[row]
            mean[row] = mean[row].lerp(gradient, 1 - beta_1)
            square[row] = beta_2 * square[row] + (1 - beta_2) * gradient.square()
            root = (square[row] / (1 - beta_2**self.steps)).sqrt()
            table[row] -= size * mean[row] / (root + EPSILON)
