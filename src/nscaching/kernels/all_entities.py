"""Gradient steps that score all entities for every query of a batch, without negatives."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.learner import AutogradLearner
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import Learning
from nscaching.models import Distances, Form, Model

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph


class AllEntities(AutogradLearner):
    """Sums the losses of both queries of a triple."""

    def __init__(self, model: Model, learning: Learning, distances: Distances) -> None:
        super().__init__(model, learning)
        self.distances = distances

    @abstractmethod
    def loss_of(self, side: Side, batch: Batch) -> Tensor:
        """Return the losses [B] of the queries of one side."""

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        loss = torch.stack([self.loss_of(side, batch) for side in Side]).sum(0)
        return loss, loss > LOGISTIC_ZERO


class OneVsAll(AllEntities):
    """Softmax over all entities: −log p(t | h, r) − log p(h | r, t) (Lacroix et al., 2018)."""

    def __init__(self, model: Model, learning: Learning, distances: Distances) -> None:
        super().__init__(model, learning, distances)
        # Other forms score the relations of a batch one by one.
        self.steady = self.steady and model.form in (Form.DOT, Form.DISTANCE)

    def loss_of(self, side: Side, batch: Batch) -> Tensor:
        anchor, answer = side.query(batch.head, batch.tail)
        scores = self.model.score_all(side, anchor, batch.relation, self.distances)
        return F.cross_entropy(scores, answer, reduction="none")


class KVsAll(AllEntities):
    """Logistic loss over all entities: true or false answers (Dettmers et al., 2018).

    A query counts once in an epoch: each of its triples has an equal share.
    """

    def __init__(
        self, model: Model, learning: Learning, distances: Distances, graph: KnowledgeGraph
    ) -> None:
        super().__init__(model, learning, distances)
        self.steady = False
        self.offsets, self.answers = {}, {}
        for side, index in graph.train_index.items():
            self.offsets[side] = torch.from_numpy(index.offsets).to(model.entity.device)
            self.answers[side] = torch.from_numpy(index.answers).long().to(model.entity.device)

    def loss_of(self, side: Side, batch: Batch) -> Tensor:
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
