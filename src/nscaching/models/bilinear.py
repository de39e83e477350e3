"""Bilinear models: hᵀ M_r t with a matrix M_r of the relation, of another shape in each model."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.arithmetic import moduli, multiply, times
from nscaching.models.base import MODELS, Model
from nscaching.models.contract import Form


class Bilinear(Model):
    """f(h, r, t) = hᵀ M_r t: the query is M_rᵀ h for the tail, M_r t for the head."""

    family = "semantic"
    form = Form.DOT
    widths: ClassVar[tuple[int, int]] = (1, 1)

    @abstractmethod
    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        """Return the vector [..., D] of entity rows [..., D] that scores relation rows: f = p·r."""

    def score_relations(self, head: Tensor, tail: Tensor) -> Tensor:
        return self.score_relations_of(self.entity_rows(head), self.entity_rows(tail))

    def score_relations_of(self, head: Tensor, tail: Tensor) -> Tensor:
        """Score every relation between entity rows [B, D] → [B, relations]."""
        return self.pair(head, tail) @ self.relation.T


@MODELS.register("DistMult")
class DistMult(Bilinear):
    """f(h, r, t) = Σᵢ hᵢ·rᵢ·tᵢ; h, r, t ∈ ℝᵈ (Yang et al., 2015): a diagonal matrix.

    (t, r, h) has the same score: no direction.
    """

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (h * self.relation_rows(relation) * t).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        return self.entity_rows(anchor) * self.relation_rows(relation)

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        return head * tail


@MODELS.register("ComplEx")
class ComplEx(Bilinear):
    """f(h, r, t) = Re(Σᵢ hᵢ·rᵢ·conj(tᵢ)); h, r, t ∈ ℂᵈ, stored as rows [real | imaginary] of 2d.

    DistMult over the complex numbers, so that direction counts (Trouillon et al., 2016).
    """

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

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        """Return conj(h)∘t."""
        h_re, h_im = head.chunk(2, dim=-1)
        return torch.cat(times(h_re, -h_im, *tail.chunk(2, dim=-1)), dim=-1)


@MODELS.register("ANALOGY")
class Analogy(Bilinear):
    """f(h, r, t) = Σᵢ hᵢ·rᵢ·tᵢ over real numbers + Re(Σⱼ hⱼ·rⱼ·conj(tⱼ)) over complex ones.

    Half as DistMult, half as ComplEx: matrices that commute, as analogies ask for (Liu, Wu and
    Yang, 2017). A row of d numbers is [real | real part | imaginary part] of d − 2c, c and c
    numbers with c = ⌊d/4⌋: fewer than four leave DistMult alone.
    """

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

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        """Return h∘t, of the complex numbers conj(h)∘t."""
        (h, h_re, h_im), (t, t_re, t_im) = self._parts(head), self._parts(tail)
        return torch.cat([h * t, *times(h_re, -h_im, t_re, t_im)], dim=-1)

    def moduli(self, rows: Tensor) -> Tensor:
        real, *pair = self._parts(rows)
        return torch.cat([real.abs(), moduli(torch.cat(pair, dim=-1))], dim=-1)

    def _parts(self, row: Tensor) -> tuple[Tensor, ...]:
        c = self.dim // 4
        return torch.split(row, [self.dim - 2 * c, c, c], dim=-1)


@MODELS.register("SimplE")
class SimplE(Bilinear):
    """f(h, r, t) = ½(⟨h_H, r, t_T⟩ + ⟨t_H, r⁻¹, h_T⟩), ⟨a, b, c⟩ = Σᵢ aᵢ·bᵢ·cᵢ.

    Kazemi and Poole, 2018. Rows of 2d: an entity's are [as head e_H | as tail e_T], a relation's
    [r | r⁻¹].
    """

    widths = (2, 2)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h_head, h_tail = self.entity_rows(head).chunk(2, dim=-1)
        t_head, t_tail = self.entity_rows(tail).chunk(2, dim=-1)
        r, inverse = self.relation_rows(relation).chunk(2, dim=-1)
        return 0.5 * (h_head * r * t_tail + t_head * inverse * h_tail).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return ½[h_T∘r⁻¹ | h_H∘r] for the tail, ½[t_T∘r | t_H∘r⁻¹] for the head."""
        as_head, as_tail = self.entity_rows(anchor).chunk(2, dim=-1)
        r, inverse = side.query(*self.relation_rows(relation).chunk(2, dim=-1))
        return 0.5 * torch.cat([as_tail * inverse, as_head * r], dim=-1)

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        """Return ½[h_H∘t_T | t_H∘h_T]."""
        return 0.5 * head * torch.cat(tail.chunk(2, dim=-1)[::-1], dim=-1)


@MODELS.register("HolE")
class HolE(Bilinear):
    """f(h, r, t) = rᵀ(h ⋆ t), (h ⋆ t)ₖ = Σᵢ hᵢ·tᵢ₊ₖ with i + k taken modulo d; h, r, t ∈ ℝᵈ.

    Circular correlation of head and tail (Nickel, Rosasco and Poggio, 2016).
    By Fourier transforms F in d·log d steps: a * b = F⁻¹(F a ∘ F b) for circular convolutions.
    """

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (self.relation_rows(relation) * self._correlate(h, t)).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the circular convolution of h and r for the tail, r ⋆ t for the head."""
        a, r = self.entity_rows(anchor), self.relation_rows(relation)
        return self._correlate(r, a) if side is Side.HEAD else self._convolve(a, r)

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        return self._correlate(head, tail)

    def _correlate(self, a: Tensor, b: Tensor) -> Tensor:
        # a ⋆ b is the convolution of b with a read backwards: a₀, a_{d−1}, …, a₁.
        return self._convolve(a.flip(-1).roll(1, -1), b)

    def _convolve(self, a: Tensor, b: Tensor) -> Tensor:
        if not a.numel():
            return a * b  # empty: there is no transform
        product: Tensor = torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=self.dim)
        return product


@MODELS.register("RESCAL")
class RESCAL(Bilinear):
    """f(h, r, t) = hᵀ M_r t; h, t ∈ ℝᵈ, M_r ∈ ℝᵈˣᵈ, stored row by row as a row of d².

    The general form (Nickel, Tresp and Kriegel, 2011).
    """

    has_matrices = True

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.relation = nn.Parameter(torch.empty(relations, dim * dim))

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (h * multiply(t, relation, self.relation_rows, self.relations)).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        rows, transposed = self.entity_rows(anchor), side is Side.TAIL
        return multiply(rows, relation, self.relation_rows, self.relations, transposed)

    def pair(self, head: Tensor, tail: Tensor) -> Tensor:
        return (head.unsqueeze(-1) * tail.unsqueeze(-2)).flatten(-2)
