"""The gradient step: scores, loss, gradients and the optimizer, by autograd."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.batches import Batch, Negatives
from nscaching.models import Model
from nscaching.objectives import Objective, logistic, margin_ranking

__all__ = ["BETAS", "EPSILON", "AutogradLearner", "Learner", "Learning", "new_optimizer"]

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's, as its authors recommend


@dataclass(frozen=True)
class Learning:
    """How a model learns from a batch."""

    objective: Objective
    margin: float
    lr: float
    weight_decay: float
    rows: bool = False
    """Whether Adam moves only the rows that have a gradient; else all, by their momentum."""
    adagrad: bool = False
    """Whether it is Adagrad that moves them."""
    cubes: float = 0.0
    """The nuclear 3-norm penalty λ, on the vectors of each triple."""

    @property
    def compiled(self) -> bool:
        """Whether compiled gradient steps know this way of learning."""
        return self.objective in ("margin", "logistic") and not (self.adagrad or self.cubes)


class Learner(ABC):
    """Makes gradient steps on a model's parameters."""

    steady = True
    """Whether steps of one size do the same operations, whatever is in the batch."""

    @abstractmethod
    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch; add loss, count of teaching triples, gradient norm to sums [4].

        The last of them counts the steps for which the sum of the losses is finite: a loss that
        is not spoils it for good, so the count plus one is the first bad step.
        """

    def reload(self) -> None:  # noqa: B027  (most keep nothing of them)
        """Hear that the parameters were changed from outside."""


class AutogradLearner(Learner):
    """Any model: torch's autograd and torch's optimizers."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning = model, learning
        self.optimizer = new_optimizer(model, learning)
        self.steady = not learning.rows

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Return the losses [B] and which of them still teach something [B]."""
        positive = self.model.score(batch.head, batch.relation, batch.tail)
        negative = negatives.scores(self.model, batch)
        weight = None
        if negatives.adversarial:
            weight = torch.softmax(negatives.adversarial * negative.detach(), 1)
        margin = self.learning.margin
        if self.learning.objective == "margin":
            return margin_ranking(positive, negative, margin, weight)  # Eq. 1
        if self.learning.objective == "shifted":
            return logistic(positive + margin, negative + margin, weight)
        return logistic(positive, negative, weight)  # Eq. 2

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch."""
        loss, teaching = self.loss(batch, negatives)
        total = loss.sum()
        if self.learning.cubes:
            total = total + self.learning.cubes * self._cubes(batch)
        self.optimizer.zero_grad()
        total.backward()
        with torch.no_grad():
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.linalg.vector_norm(
                torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
            )
            sums[:3] += torch.stack([loss.detach().sum(), teaching.sum(), norm]).double()
            sums[3] += sums[0].abs() < math.inf
        self.optimizer.step()

    def _cubes(self, batch: Batch) -> Tensor:
        """Return Σ |h|³ + |r|³ + |t|³ of the triples (Lacroix et al., 2018)."""
        head, tail = (self.model.entity_rows(ids) for ids in (batch.head, batch.tail))
        relation = torch.nn.functional.embedding(batch.relation, self.model.relation)
        sizes = (self.model.moduli(rows).pow(3).sum() for rows in (head, relation, tail))
        return torch.stack(list(sizes)).sum()


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
            if table.grad is None:
                continue
            row = table.grad.any(1).nonzero().squeeze(1)
            gradient = table.grad[row] + weight_decay * table[row]
            mean[row] = mean[row].lerp(gradient, 1 - beta_1)
            square[row] = beta_2 * square[row] + (1 - beta_2) * gradient.square()
            root = (square[row] / (1 - beta_2**self.steps)).sqrt()
            table[row] -= size * mean[row] / (root + EPSILON)


def new_optimizer(
    model: Model, learning: Learning
) -> torch.optim.Adam | torch.optim.Adagrad | RowAdam:
    """Return the optimizer of a model's parameters."""
    if learning.rows:
        return RowAdam(model.parameters(), learning)
    decay = learning.weight_decay
    if learning.adagrad:
        return torch.optim.Adagrad(model.parameters(), lr=learning.lr, weight_decay=decay)
    return torch.optim.Adam(
        model.parameters(),
        lr=learning.lr,
        betas=BETAS,
        eps=EPSILON,
        weight_decay=decay,
        fused=True,
        capturable=model.entity.device.type == "cuda",
    )
