"""The gradient step: scores, loss, gradients and the optimizer, by autograd."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.losses import losses
from nscaching.kernels.optimizers import TORCH_NAMES, Learning, RowAdam, move, new_optimizer
from nscaching.kernels.state import State
from nscaching.models import Model


class Scorer(ABC):
    """Scores candidates and learns by slopes of a loss by these scores."""

    @abstractmethod
    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        """Score entities [B, K] in place of head or tail, with no gradient; ``learn`` is next."""

    @abstractmethod
    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        """Learn by the slopes [B, K] of some loss by these scores."""

    def reload(self) -> None:  # noqa: B027  (most derive nothing)
        """Rebuild what is derived from the parameters, after anything else changed them."""

    @abstractmethod
    def checkpoint(self) -> State:
        """Return all state beside the parameters.

        All learners call means and squares of gradients, and numbers of steps, by the same names.
        """

    @abstractmethod
    def restore(self, state: State) -> None:
        """Restore the state of a checkpoint, after the parameters of the checkpoint."""


class Learner(Scorer):
    """Makes gradient steps on a model's parameters."""

    steady = True
    """Whether steps of one size do the same operations, whatever is in the batch."""

    @abstractmethod
    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch; add loss, count of teaching triples, gradient norm to sums [4].

        The last number counts the steps up to which the sum of the losses is finite. A non-finite
        loss makes all later sums non-finite, so the count plus one is the first bad step.
        """


class AutogradLearner(Learner):
    """Any model: torch's autograd and torch's optimizers."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning = model, learning
        self.optimizer = new_optimizer(model, learning)
        self.steady = not learning.rows
        self.scored: Tensor | None = None
        """Scores for which ``learn`` is next."""

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Return the losses [B] and which of them still teach something [B]."""
        positive = self.model.score(batch.head, batch.relation, batch.tail)
        negative = negatives.scores(self.model, batch)
        how = self.learning.objective, self.learning.margin
        return losses(*how, positive, negative, negatives.adversarial)

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
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
        move(self.optimizer, self.learning.weight_decay * len(batch))

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        triple = batch.head, batch.relation, batch.tail
        self.scored = self.model.score_corrupted(replace_head, *triple, entity)
        return self.scored.detach()

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        assert self.scored is not None
        self.optimizer.zero_grad()
        self.scored.backward(slopes)
        # Autograd's graph of one step must be freed: a CUDA graph may record the next step.
        self.scored = None
        move(self.optimizer, self.learning.weight_decay * len(batch))

    def checkpoint(self) -> State:
        state: State = {}
        for name, table in self.model.named_parameters():
            if own := self.optimizer.state.get(table):  # a table without a gradient has none
                names = TORCH_NAMES[type(self.optimizer)]
                state |= {f"{ours}.{name}": own[theirs] for ours, theirs in names.items()}
                state[f"steps.{name}"] = int(own["step"])
        return state

    def restore(self, state: State) -> None:
        tables, optimizer = {}, self.optimizer
        for index, (name, _) in enumerate(self.model.named_parameters()):
            if f"steps.{name}" in state:
                names = TORCH_NAMES[type(optimizer)]
                # Copies: numbers anywhere in a mapped file may be summed in another order.
                own = {theirs: state[f"{ours}.{name}"].clone() for ours, theirs in names.items()}
                steps = state[f"steps.{name}"]
                plain = isinstance(optimizer, RowAdam)
                tables[index] = own | {"step": steps if plain else torch.tensor(float(steps))}
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": tables, "param_groups": groups})

    def _cubes(self, batch: Batch) -> Tensor:
        """Return Σ |h|³ + |r|³ + |t|³ of the triples (Lacroix et al., 2018)."""
        head, tail = (self.model.entity_rows(ids) for ids in (batch.head, batch.tail))
        relation = self.model.relation_rows(batch.relation)
        sizes = (self.model.moduli(rows).pow(3).sum() for rows in (head, relation, tail))
        return torch.stack(list(sizes)).sum()
