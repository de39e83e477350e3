"""ComplEx (Trouillon et al., 2016): DistMult over the complex numbers, so direction counts."""

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.arithmetic import moduli, times
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("ComplEx")
class ComplEx(Model):
    """f(h, r, t) = Re(Σᵢ hᵢ·rᵢ·conj(tᵢ)); h, r, t ∈ ℂᵈ, stored as rows [real | imaginary] of 2d."""

    family = "semantic"
    form = Form.DOT
    widths = (2, 2)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h_re, h_im = self.entity_rows(head).chunk(2, dim=-1)
        t_re, t_im = self.entity_rows(tail).chunk(2, dim=-1)
        r_re, r_im = self.relation_rows(relation).chunk(2, dim=-1)
        real, imaginary = times(h_re, h_im, r_re, r_im)
        return (real * t_re + imaginary * t_im).sum(-1)

    def moduli(self, rows: Tensor) -> Tensor:
        return moduli(rows)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h∘r for the tail, conj(r)∘t for the head, as [real | imaginary]."""
        a_re, a_im = self.entity_rows(anchor).chunk(2, dim=-1)
        r_re, r_im = self.relation_rows(relation).chunk(2, dim=-1)
        return torch.cat(times(a_re, a_im, r_re, r_im if side is Side.TAIL else -r_im), dim=-1)
