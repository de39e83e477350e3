"""TranSparse (Ji et al., 2016): TransR whose matrices are the sparser, the rarer the relation."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.models.base import MODELS
from nscaching.models.transr import TransR

LEAST_SPARSE = 0.3  # share of zeros θ_min in the matrix of the commonest relation


@MODELS.register("TranSparse")
class TranSparse(TransR):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = M_r e scaled to unit length; h, r, t ∈ ℝᵈ.

    Of M_r's numbers off the diagonal a share θ_r = 1 − (1 − θ_min)·N_r/N_max is zero for good,
    chosen at random; N_r counts the training triples of r. This is the "share" variant: one matrix
    for head and tail. Without training triples the model is TransR.
    """

    mask: Tensor  # bool [|R|, d·d]

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.register_buffer("mask", torch.ones(relations, dim * dim, dtype=torch.bool))

    def prepare(self, graph: KnowledgeGraph) -> None:
        count = np.bincount(graph.train[:, 1], minlength=self.relations)
        density = torch.from_numpy((1 - LEAST_SPARSE) * count / max(1, count.max()))
        drawn = torch.rand(self.mask.shape, generator=torch.Generator().manual_seed(0))
        diagonal = torch.eye(self.dim, dtype=torch.bool).view(-1)
        self.mask.copy_((drawn < density.unsqueeze(1)) | diagonal)

    def matrices(self, relation: Tensor) -> Tensor:
        return super().matrices(relation) * F.embedding(relation, self.mask)
