"""TransM (Fan et al., 2014): TransE that takes relations with many answers less seriously."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.models.base import MODELS
from nscaching.models.transe import TransE


@MODELS.register("TransM")
class TransM(TransE):
    """f(h, r, t) = −w_r·‖h + r − t‖ with entity vectors h, t of unit length; h, r, t ∈ ℝᵈ.

    w_r = 1 / log(tph_r + hpt_r), by the mean numbers of tails per head and heads per tail of the
    training triples; it is not learned. Without training triples w_r is 1.
    """

    weight: Tensor  # [|R|]

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.register_buffer("weight", torch.ones(relations))

    def prepare(self, graph: KnowledgeGraph) -> None:
        tph, hpt = graph.cardinality
        # Of a relation that was seen both are at least one.
        self.weight.copy_(torch.from_numpy(1 / np.log(np.maximum(tph + hpt, 2))))

    def weight_of(self, relation: Tensor) -> Tensor:
        return F.embedding(relation, self.weight.unsqueeze(1)).squeeze(-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self.weight_of(relation) * super().score(head, relation, tail)
