"""The models on GPUs: their numbers, products of complex numbers, the projection of a query."""

from __future__ import annotations

import triton
import triton.language as tl

from nscaching.kernels import codes

__all__ = [
    "COMPLEX", "DISTMULT", "GIVEN", "TRANSD", "TRANSE", "TRANSH", "conj_times", "project_prelude",
    "times",
]  # fmt: skip

# GIVEN: a model that has no kernels of its own gives its query vectors.
DISTMULT, COMPLEX = tl.constexpr(codes.DISTMULT), tl.constexpr(codes.COMPLEX)
TRANSE, TRANSH, TRANSD = (tl.constexpr(c) for c in (codes.TRANSE, codes.TRANSH, codes.TRANSD))
GIVEN = tl.constexpr(5)


@triton.jit
def times(a_re, a_im, b_re, b_im):
    """Return real and imaginary part of a·b."""
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


@triton.jit
def conj_times(a_re, a_im, b_re, b_im):
    """Return real and imaginary part of conj(a)·b."""
    return a_re * b_re + a_im * b_im, a_re * b_im - a_im * b_re


@triton.jit
def project_prelude(a, shift, v, D: tl.constexpr, CHUNK: tl.constexpr, KIND: tl.constexpr):
    """Return s and c of the projection P(a) = c·(a + s·v) of the row at ``a``."""
    s = 0.0
    scale = 1.0
    if KIND == TRANSH:
        for d0 in tl.static_range(0, D, CHUNK):
            d = d0 + tl.arange(0, CHUNK)
            a_d = tl.load(a + d, d < D, 0.0)
            s -= tl.sum(a_d * tl.load(v + d, d < D, 0.0), 0)
    if KIND == TRANSD:
        s = shift
        square = 0.0
        for d0 in tl.static_range(0, D, CHUNK):
            d = d0 + tl.arange(0, CHUNK)
            a_d = tl.load(a + d, d < D, 0.0)
            a_d += s * tl.load(v + d, d < D, 0.0)
            square += tl.sum(a_d * a_d, 0)
        scale = 1.0 / tl.maximum(tl.sqrt(square), 1e-12)
    return s, scale
