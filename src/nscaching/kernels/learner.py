"""The gradient step by autograd: with negatives, or with all entities for every query."""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import AnswerIndex, Side
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import Contrast
from nscaching.kernels.losses import LOGISTIC_ZERO, losses
from nscaching.kernels.optimizers import (
    TORCH_NAMES,
    Learning,
    RowAdagrad,
    RowAdam,
    move,
    new_optimizer,
)
from nscaching.kernels.products import rounded_products
from nscaching.kernels.state import State
from nscaching.models import Distances, Form, Model


class Learner(ABC):
    """Makes gradient steps; also scores candidates and learns by slopes of a loss by the scores."""

    steady = True  # whether steps of one size do the same operations, whatever is in the batch

    @abstractmethod
    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        """Learn from a batch; add loss, count of teaching triples, gradient norm to sums [4].

        The last number counts the steps up to which the sum of the losses is finite. A non-finite
        loss makes all later sums non-finite, so the count plus one is the first bad step.
        """

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


class AutogradLearner(Learner):
    """Any model: torch's autograd and torch's optimizers."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning = model, learning
        self.optimizer = new_optimizer(model, learning)
        self.steady = not learning.rows
        self.scored: Tensor | None = None  # scores for which ``learn`` is next

    def loss(self, batch: Batch, negatives: Contrast) -> tuple[Tensor, Tensor]:
        """Return the losses [B] and which of them still teach something [B]."""
        assert isinstance(negatives, Negatives)
        positive = self.model.score(batch.head, batch.relation, batch.tail)
        negative = negatives.scores(self.model, batch)
        how = self.learning.objective, self.learning.margin
        return losses(*how, positive, negative, negatives.adversarial)

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        loss, teaching = self.loss(batch, negatives)
        total = loss.sum()
        if self.learning.cubes:
            triple = batch.head, batch.relation, batch.tail
            total = total + self.learning.cubes * cubes(self.model, *triple)
        self.optimizer.zero_grad()
        total.backward()
        with torch.no_grad():
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
            norm = torch.linalg.vector_norm(torch.stack(norms))
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
                plain = isinstance(optimizer, RowAdam | RowAdagrad)
                tables[index] = own | {"step": steps if plain else torch.tensor(float(steps))}
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": tables, "param_groups": groups})


def cubes(model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """Return Σ |h|³ + |r|³ + |t|³ of triples (Lacroix et al., 2018).

    With reciprocal relations, |r|³ is the mean of the relation's and its inverse's.
    """

    def sizes(rows: Tensor) -> Tensor:
        return model.moduli(rows).pow(3).sum()

    of_head, of_tail = (sizes(model.entity_rows(ids)) for ids in (head, tail))
    asked = (model.asked(side, relation)[1] for side in Side)
    inverse, direct = (sizes(model.relation_rows(ids)) for ids in asked)
    return of_head + of_tail + (direct + inverse) / 2


def relation_losses(
    model: Model, head: Tensor, relation: Tensor, tail: Tensor, scale: float
) -> Tensor:
    """Return −log p(r | h, t) [B], with reciprocal relations also −log p(r⁻¹ | t, h).

    Relation prediction as a second task (Chen et al., 2021).
    """
    losses = []
    for side in Side if model.reciprocal else (Side.TAIL,):
        scores = scale * model.score_relations(*side.query(head, tail))
        wanted = model.asked(side, relation)[1]
        losses.append(F.cross_entropy(scores, wanted, reduction="none"))
    return torch.stack(losses).sum(0)


class AllEntities(AutogradLearner):
    """Scores all entities, without negatives; sums the losses of both queries of a triple."""

    def __init__(self, model: Model, learning: Learning, distances: Distances) -> None:
        super().__init__(model, learning)
        self.distances = distances
        # Other forms score the relations of a batch one by one.
        self.steady = self.steady and model.form in (Form.DOT, Form.DISTANCE)

    @abstractmethod
    def loss_of(self, side: Side, batch: Batch, negatives: Contrast) -> Tensor:
        """Return the losses [B] of the queries of one side."""

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        with rounded_products(sums.device):
            super().step(batch, negatives, sums)

    def loss(self, batch: Batch, negatives: Contrast) -> tuple[Tensor, Tensor]:
        loss = torch.stack([self.loss_of(side, batch, negatives) for side in Side]).sum(0)
        if weight := self.learning.relation_weight:
            triple = batch.head, batch.relation, batch.tail
            loss = loss + weight * relation_losses(self.model, *triple, self.learning.scale)
        return loss, loss > LOGISTIC_ZERO


class OneVsAll(AllEntities):
    """Softmax over all entities: −log p(t | h, r) − log p(h | r, t) (Lacroix et al., 2018)."""

    def loss_of(self, side: Side, batch: Batch, negatives: Contrast) -> Tensor:
        anchor, answer = side.query(batch.head, batch.tail)
        scores = self.model.score_all(side, anchor, batch.relation, self.distances)
        return F.cross_entropy(self.learning.scale * scores, answer, reduction="none")


class KVsAll(AllEntities):
    """Logistic loss over all entities: true or false answers (Dettmers et al., 2018).

    A query counts once in an epoch: each of its triples has an equal share.
    """

    def __init__(
        self, model: Model, learning: Learning, distances: Distances, true: dict[Side, AnswerIndex]
    ) -> None:
        super().__init__(model, learning, distances)
        self.steady = False
        self.offsets, self.answers = {}, {}
        for side, index in true.items():
            self.offsets[side] = torch.from_numpy(index.offsets).to(model.entity.device)
            self.answers[side] = torch.from_numpy(index.answers).long().to(model.entity.device)

    def loss_of(self, side: Side, batch: Batch, negatives: Contrast) -> Tensor:
        anchor, _ = side.query(batch.head, batch.tail)
        key, place = batch.key(side).unique(return_inverse=True)
        # All triples of a key have the same anchor and relation: take any of them.
        position = torch.arange(len(batch), device=key.device)
        one = torch.empty_like(key).scatter_(0, place, position)
        scores = self.model.score_all(side, anchor[one], batch.relation[one], self.distances)
        offsets = self.offsets[side]
        known = Known(offsets[key], offsets[key + 1], self.answers[side])
        row, entity = known.pairs()
        loss = F.softplus(scores).sum(1).index_add(0, row, -scores[row, entity])
        return (loss / (known.end - known.start))[place]
