"""TransE (Bordes et al., 2013): a relation is a translation."""

import torch
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("TransE")
class TransE(Model):
    """f(h, r, t) = −‖h + r − t‖ with entity vectors h, t of unit length; h, r, t ∈ ℝᵈ."""

    family = "translational"
    form = Form.DISTANCE
    normalized = ("entity",)

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, dim))
        self.relation = nn.Parameter(torch.empty(relations, dim))

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return −‖h + r − t‖."""
        h, t = self.entity_rows(head), self.entity_rows(tail)
        r = self.relation_rows(relation)
        return -self.length(h + r - t)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h + r for the tail, t − r for the head."""
        r = self.relation_rows(relation)
        return self.entity_rows(anchor) + (r if side is Side.TAIL else -r)
