"""ANALOGY (Liu, Wu and Yang, 2017): matrices of a relation that commute, as analogies ask for."""

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.arithmetic import moduli, times
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("ANALOGY")
class Analogy(Model):
    """f(h, r, t) = Σᵢ hᵢ·rᵢ·tᵢ over real numbers + Re(Σⱼ hⱼ·rⱼ·conj(tⱼ)) over complex ones.

    Half as DistMult, half as ComplEx. A row of d numbers is [real | real part | imaginary part]
    of d − 2c, c and c numbers with c = ⌊d/4⌋: fewer than four leave DistMult alone.
    """

    family = "semantic"
    form = Form.DOT
    widths = (1, 1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, h_re, h_im = self._parts(self.entity_rows(head))
        t, t_re, t_im = self._parts(self.entity_rows(tail))
        r, r_re, r_im = self._parts(self.relation_rows(relation))
        real, imaginary = times(h_re, h_im, r_re, r_im)
        return (h * r * t).sum(-1) + (real * t_re + imaginary * t_im).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return anchor ∘ r, of the complex numbers anchor ∘ conj(r) for the head."""
        a, a_re, a_im = self._parts(self.entity_rows(anchor))
        r, r_re, r_im = self._parts(self.relation_rows(relation))
        pair = times(a_re, a_im, r_re, r_im if side is Side.TAIL else -r_im)
        return torch.cat([a * r, *pair], dim=-1)

    def moduli(self, rows: Tensor) -> Tensor:
        real, *pair = self._parts(rows)
        return torch.cat([real.abs(), moduli(torch.cat(pair, dim=-1))], dim=-1)

    def _parts(self, row: Tensor) -> tuple[Tensor, ...]:
        c = self.dim // 4
        return torch.split(row, [self.dim - 2 * c, c, c], dim=-1)
