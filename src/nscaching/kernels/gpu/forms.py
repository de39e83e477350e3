"""The numbers by which GPU kernels know the models, and products of complex numbers."""

import triton
import triton.language as tl

from nscaching.kernels import codes

DISTMULT, COMPLEX = tl.constexpr(codes.DISTMULT), tl.constexpr(codes.COMPLEX)
TRANSE, TRANSH, TRANSD = (tl.constexpr(c) for c in (codes.TRANSE, codes.TRANSH, codes.TRANSD))
GIVEN = tl.constexpr(codes.GIVEN)


@triton.jit
def times(a_re, a_im, b_re, b_im):
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


@triton.jit
def conj_times(a_re, a_im, b_re, b_im):
    return a_re * b_re + a_im * b_im, a_re * b_im - a_im * b_re
