"""TransH (Wang et al., 2014): translation on the relation's hyperplane."""

import torch
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("TransH")
class TransH(Model):
    """f(h, r, t) = −‖(h − wᵀh·w) + r − (t − wᵀt·w)‖ with h, t, r and w all of unit length.

    The hyperplane's normal w belongs to the relation: a row e is shifted by s = −wᵀe along v = w.
    """

    family = "translational"
    form = Form.SHIFTED
    normalized = ("entity", "relation", "normal")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, dim))
        self.relation = nn.Parameter(torch.empty(relations, dim))
        self.normal = nn.Parameter(torch.empty(relations, dim))

    def direction(self, relation: Tensor) -> Tensor:
        """Return the unit normal w."""
        return self.rows_of("normal", relation)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return −‖h⊥ + r − t⊥‖, both entities projected onto the hyperplane."""
        h, t, w = self.entity_rows(head), self.entity_rows(tail), self.direction(relation)
        r = self.relation_rows(relation)
        h = h - (w * h).sum(-1, keepdim=True) * w
        t = t - (w * t).sum(-1, keepdim=True) * w
        return -self.length(h + r - t)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h⊥ + r for the tail, t⊥ − r for the head."""
        r = self.relation_rows(relation)
        projected = self._shifted(self.entity_rows(anchor), anchor, self.direction(relation))
        return projected + (r if side is Side.TAIL else -r)
