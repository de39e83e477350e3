"""TransR (Lin et al., 2015): translation in the relation's own space."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.models.base import MODELS, Form
from nscaching.models.grouped import multiply
from nscaching.models.transe import TransE


@MODELS.register("TransR")
class TransR(TransE):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = M_r e scaled to unit length; h, r, t ∈ ℝᵈ.

    h, t and r are of unit length too: the papers of TransR and TransD ask for lengths of one at
    most, of projected vectors as well. M_r ∈ ℝᵈˣᵈ is stored row by row as a row of d² and
    starts as the identity.
    """

    form = Form.PROJECTED
    normalized = ("entity", "relation")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.matrix = nn.Parameter(torch.empty(relations, dim * dim))

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start with Xavier's distribution and matrices that change nothing: TransE."""
        super().reset(generator)
        with torch.no_grad():
            self.matrix.copy_(torch.eye(self.dim).view(-1))

    def matrices(self, relation: Tensor) -> Tensor:
        """Return the numbers of M_r [..., d·d]."""
        return F.embedding(relation, self.matrix)

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        return F.normalize(multiply(rows, relation, self.matrices, self.relations), dim=-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = (self.project(self.entity_rows(ids), relation) for ids in (head, tail))
        return -self.length(h + self.relation_rows(relation) - t)
