"""ComplEx (Trouillon et al., 2016): DistMult over the complex numbers, so direction counts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model

__all__ = ["ComplEx"]


@MODELS.register("ComplEx")
class ComplEx(Model):
    """f(h, r, t) = Re(Σᵢ hᵢ·rᵢ·conj(tᵢ)); h, r, t ∈ ℂᵈ, stored as rows [real | imaginary] of 2d."""

    family = "semantic"
    form = Form.DOT

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, 2 * dim))
        self.relation = nn.Parameter(torch.empty(relations, 2 * dim))

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return Re⟨h, r, conj t⟩."""
        h_re, h_im = self.entity_rows(head).chunk(2, dim=-1)
        t_re, t_im = self.entity_rows(tail).chunk(2, dim=-1)
        r_re, r_im = F.embedding(relation, self.relation).chunk(2, dim=-1)
        real = (h_re * r_re - h_im * r_im) * t_re
        imaginary = (h_re * r_im + h_im * r_re) * t_im
        return (real + imaginary).sum(-1)

    def moduli(self, rows: Tensor) -> Tensor:
        """Return the moduli [..., d] of complex numbers [real | imaginary]."""
        moduli: Tensor = torch.linalg.vector_norm(rows.unflatten(-1, (2, -1)), dim=-2)
        return moduli

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h∘r for the tail, conj(r)∘t for the head, as [real | imaginary]."""
        a_re, a_im = self.entity_rows(anchor).chunk(2, dim=-1)
        r_re, r_im = F.embedding(relation, self.relation).chunk(2, dim=-1)
        if side is Side.HEAD:
            r_im = -r_im
        return torch.cat([a_re * r_re - a_im * r_im, a_re * r_im + a_im * r_re], dim=-1)
