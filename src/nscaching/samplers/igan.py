"""Negatives from a network with a softmax over all entities: IGAN."""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.kernels import AutogradLearner, Batch
from nscaching.models import Form, Model
from nscaching.samplers.base import SAMPLERS
from nscaching.samplers.draws import Draws
from nscaching.samplers.generator import Generating


class Network(Model):
    """Two layers over the vectors of the given entity and of the relation: f = e·W₂[W₁[a, r] + b]₊.

    A relation has one vector for queries for tails and one for queries for heads.
    """

    family = "semantic"
    form = Form.DOT
    widths = (1, 2)

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.inner = nn.Parameter(torch.empty(dim, 2 * dim))
        self.shift = nn.Parameter(torch.empty(1, dim))
        self.outer = nn.Parameter(torch.empty(dim, dim))

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        for_tail, for_head = self.relation_rows(relation).chunk(2, dim=-1)
        asked = for_tail if side is Side.TAIL else for_head
        given = torch.cat([self.entity_rows(anchor), asked], dim=-1)
        return F.relu(given @ self.inner.T + self.shift) @ self.outer.T

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Score tails of (h, r, ?): as heads of (?, r, t) the same triples have other scores."""
        head, relation, tail = torch.broadcast_tensors(head, relation, tail)
        return (self.query(Side.TAIL, head, relation) * self.entity_rows(tail)).sum(-1)


@SAMPLERS.register("igan")
class IGAN(Generating):
    """Wang, Li and Pan, 2018: the generator gives a distribution over all entities.

    Known triples are never drawn. The baseline of a negative's reward is the mean of other draws
    for the same query, and the entropy of the distribution has a weight beside the reward: the
    best generator draws by softmax(f / weight) with the scores f of the trained model.
    """

    scores_all = True
    filters_known = True
    own_generator = Network
    judged = 8
    scorer: AutogradLearner

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        heads, tails = (graph.train_index[side] for side in (Side.HEAD, Side.TAIL))
        self.heads = len(heads)  # the keys of tails come behind those of heads
        first = np.append(heads.offsets[:-1], tails.offsets[:-1] + len(heads.answers))
        size = np.append(np.diff(heads.offsets), np.diff(tails.offsets))
        answers = np.append(heads.answers, tails.answers)
        self.answers = torch.as_tensor(answers, device=self.device)
        self.first, self.size = (torch.as_tensor(a, device=self.device) for a in (first, size))
        self.within = torch.arange(int(size.max()), device=self.device)
        self.bonus = self.config.gan.entropy_bonus
        return super().prepare(graph)

    def begin(self, start: Mapping[str, Tensor]) -> None:
        """Give the generator the entity vectors of a run of any model, as far as they reach."""
        with torch.no_grad():
            self.generator.entity.copy_(start["entity"][:, : self.config.dim])

    def candidates(self, batch: Batch, replace_head: Tensor) -> tuple[Tensor, Tensor]:
        """Score every entity for each triple: time and memory grow with the number of entities."""
        triple = replace_head, batch.head, batch.relation, batch.tail
        self.scorer.scored = self.generator.score_all_corrupted(*triple, self.kernels.distances)
        scores = self.scorer.scored.detach().clone()
        self.leave_out_known(scores, batch, replace_head)
        return torch.arange(self.entities, device=self.device).expand(len(batch), -1), scores

    def leave_out_known(self, scores: Tensor, batch: Batch, replace_head: Tensor) -> None:
        """Set the scores [B, |E|] of known triples to −∞.

        Each query takes as many places as the longest list of answers, so that steps do the same
        operations: behind its last answer the last one again.
        """
        key = torch.where(replace_head, batch.head_key, self.heads + batch.tail_key).unsqueeze(1)
        size = self.size[key]  # [B, 1]
        known = self.answers[self.first[key] + torch.minimum(self.within, size - 1)].long()
        # Where all entities are known, each is as likely as any.
        value = torch.full_like(size, -torch.inf, dtype=scores.dtype)
        value.masked_fill_(size == self.entities, 0.0)
        scores.scatter_(1, known, value.expand_as(known))

    def gains(self, reward: Tensor) -> Tensor:
        """Return how much better each draw [B, K] is than the others of its query, a K-th of it."""
        return (reward - reward.mean(1, keepdim=True)) / (reward.shape[1] - 1)
