"""TransH (Wang et al., 2014): translation on the relation's hyperplane."""

import torch
from torch import Tensor, nn

from nscaching.models.base import MODELS, Form
from nscaching.models.transe import TransE


@MODELS.register("TransH")
class TransH(TransE):
    """f(h, r, t) = −‖(h − wᵀh·w) + r − (t − wᵀt·w)‖ with h, t, r and w all of unit length.

    The hyperplane's normal w belongs to the relation: a row e is shifted by s = −wᵀe along v = w.
    """

    form = Form.SHIFTED
    normalized = ("entity", "relation", "normal")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.normal = nn.Parameter(torch.empty(relations, dim))

    def direction(self, relation: Tensor) -> Tensor:
        return self.rows_of("normal", relation)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t, w = self.entity_rows(head), self.entity_rows(tail), self.direction(relation)
        h = h - (w * h).sum(-1, keepdim=True) * w
        t = t - (w * t).sum(-1, keepdim=True) * w
        return -self.length(h + self.relation_rows(relation) - t)
