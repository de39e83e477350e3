"""Gradient steps that score all entities for every query of a batch, without negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.learner import AutogradLearner
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import Learning
from nscaching.models import Distances, Form, Model

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph


class OneVsAll(AutogradLearner):
    """Softmax over all entities for both queries of a triple (Lacroix et al., 2018)."""

    def __init__(self, model: Model, learning: Learning, distances: Distances) -> None:
        super().__init__(model, learning)
        self.distances = distances
        # Other forms score the relations of a batch one by one.
        self.steady = self.steady and model.form in (Form.DOT, Form.DISTANCE)

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Return −log p(t | h, r) − log p(h | r, t) of each triple."""
        losses = []
        for side in Side:
            anchor, answer = side.query(batch.head, batch.tail)
            scores = self.model.score_all(side, anchor, batch.relation, self.distances)
            losses.append(F.cross_entropy(scores, answer, reduction="none"))
        loss = torch.stack(losses).sum(0)
        return loss, loss > LOGISTIC_ZERO


class KVsAll(AutogradLearner):
    """Logistic loss over all entities: true or false answers (Dettmers et al., 2018).

    A query counts once in an epoch: each of its triples has an equal share.
    """

    def __init__(
        self, model: Model, learning: Learning, distances: Distances, graph: KnowledgeGraph
    ) -> None:
        super().__init__(model, learning)
        self.distances = distances
        self.steady = False
        device = model.entity.device
        self.offsets = {
            side: torch.from_numpy(index.offsets).to(device)
            for side, index in graph.train_index.items()
        }
        self.answers = {
            side: torch.from_numpy(index.answers).long().to(device)
            for side, index in graph.train_index.items()
        }

    def loss(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Return the logistic losses of both queries over all entities, for each triple."""
        losses = []
        for side in Side:
            anchor, _ = side.query(batch.head, batch.tail)
            key, place = batch.key(side).unique(return_inverse=True)
            # All triples of a key have the same anchor and relation: take any of them.
            position = torch.arange(len(batch), device=key.device)
            one = torch.empty_like(key).scatter_(0, place, position)
            scores = self.model.score_all(side, anchor[one], batch.relation[one], self.distances)
            start, end = self.offsets[side][key], self.offsets[side][key + 1]
            size = end - start
            row = torch.repeat_interleave(size)
            within = torch.arange(len(row), device=key.device) - (size.cumsum(0) - size)[row]
            true = scores[row, self.answers[side][start[row] + within]]
            loss = F.softplus(scores).sum(1).index_add(0, row, -true)
            losses.append((loss / size)[place])
        loss = torch.stack(losses).sum(0)
        return loss, loss > LOGISTIC_ZERO
