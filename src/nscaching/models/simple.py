"""SimplE (Kazemi and Poole, 2018): entities as heads and as tails, relations and inverses."""

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("SimplE")
class SimplE(Model):
    """f(h, r, t) = ½(⟨h_H, r, t_T⟩ + ⟨t_H, r⁻¹, h_T⟩), ⟨a, b, c⟩ = Σᵢ aᵢ·bᵢ·cᵢ.

    Rows of 2d: an entity's are [as head e_H | as tail e_T], a relation's [r | r⁻¹].
    """

    family = "semantic"
    form = Form.DOT
    widths = (2, 2)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h_head, h_tail = self.entity_rows(head).chunk(2, dim=-1)
        t_head, t_tail = self.entity_rows(tail).chunk(2, dim=-1)
        r, inverse = self.relation_rows(relation).chunk(2, dim=-1)
        return 0.5 * (h_head * r * t_tail + t_head * inverse * h_tail).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return ½[h_T∘r⁻¹ | h_H∘r] for the tail, ½[t_T∘r | t_H∘r⁻¹] for the head."""
        as_head, as_tail = self.entity_rows(anchor).chunk(2, dim=-1)
        r, inverse = self.relation_rows(relation).chunk(2, dim=-1)
        if side is Side.HEAD:
            r, inverse = inverse, r
        return 0.5 * torch.cat([as_tail * inverse, as_head * r], dim=-1)
