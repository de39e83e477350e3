"""TransD (Ji et al., 2015): a projection made of an entity's and a relation's vector."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.models.base import MODELS, Form
from nscaching.models.transe import TransE


@MODELS.register("TransD")
class TransD(TransE):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = (e + w_r·w_eᵀe) scaled to unit length.

    h, t and r are of unit length too; the projection vectors w_e and w_r are free. A row e is
    shifted by the scalar s = w_eᵀe along v = w_r.
    """

    form = Form.SHIFTED
    unit_projection = True
    normalized = ("entity", "relation")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity_projection = nn.Parameter(torch.empty(entities, dim))
        self.relation_projection = nn.Parameter(torch.empty(relations, dim))

    def direction(self, relation: Tensor) -> Tensor:
        return F.embedding(relation, self.relation_projection)

    def entity_shift(self, ids: Tensor) -> Tensor:
        return (self.entity_rows(ids) * F.embedding(ids, self.entity_projection)).sum(-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t, w_r = self.entity_rows(head), self.entity_rows(tail), self.direction(relation)
        w_h, w_t = (F.embedding(ids, self.entity_projection) for ids in (head, tail))
        h = F.normalize(h + (w_h * h).sum(-1, keepdim=True) * w_r, dim=-1)
        t = F.normalize(t + (w_t * t).sum(-1, keepdim=True) * w_r, dim=-1)
        return -self.length(h + self.relation_rows(relation) - t)
