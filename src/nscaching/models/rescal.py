"""RESCAL (Nickel, Tresp and Kriegel, 2011): a bilinear form with a matrix for each relation."""

import torch
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model
from nscaching.models.grouped import multiply


@MODELS.register("RESCAL")
class RESCAL(Model):
    """f(h, r, t) = hᵀ M_r t; h, t ∈ ℝᵈ, M_r ∈ ℝᵈˣᵈ, stored row by row as a row of d²."""

    family = "semantic"
    form = Form.DOT

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, dim))
        self.relation = nn.Parameter(torch.empty(relations, dim * dim))

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (h * multiply(t, relation, self.relation_rows, self.relations)).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return M_rᵀ h for the tail, M_r t for the head."""
        rows, transposed = self.entity_rows(anchor), side is Side.TAIL
        return multiply(rows, relation, self.relation_rows, self.relations, transposed)
