"""HolE (Nickel, Rosasco and Poggio, 2016): circular correlation of head and tail."""

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("HolE")
class HolE(Model):
    """f(h, r, t) = rᵀ(h ⋆ t), (h ⋆ t)ₖ = Σᵢ hᵢ·tᵢ₊ₖ with i + k taken modulo d; h, r, t ∈ ℝᵈ.

    By Fourier transforms F in d·log d steps: a * b = F⁻¹(F a ∘ F b) for circular convolutions.
    """

    family = "semantic"
    form = Form.DOT
    widths = (1, 1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (self.relation_rows(relation) * self._correlate(h, t)).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the circular convolution of h and r for the tail, r ⋆ t for the head."""
        a, r = self.entity_rows(anchor), self.relation_rows(relation)
        return self._correlate(r, a) if side is Side.HEAD else self._convolve(a, r)

    def _correlate(self, a: Tensor, b: Tensor) -> Tensor:
        # a ⋆ b is the convolution of b with a read backwards: a₀, a_{d−1}, …, a₁.
        return self._convolve(a.flip(-1).roll(1, -1), b)

    def _convolve(self, a: Tensor, b: Tensor) -> Tensor:
        if not a.numel():
            return a * b  # empty: there is no transform
        product: Tensor = torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=self.dim)
        return product
