"""The gradient of the nuclear 3-norm penalty, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import COMPLEX
from nscaching.kernels.gpu.step import add_whole


@triton.jit
def penalise_row(
    row, table, gradient, touched, strength,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Add λ·∂|x|³ = 3λ·|x|·x; numbers of ComplEx have their imaginary halves behind the real."""
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if KIND == COMPLEX else D)
    X = tl.load(table + row * D + d, inside, 0.0)
    size = tl.abs(X)
    if KIND == COMPLEX:
        X_im = tl.load(table + row * D + HALF + d, inside, 0.0)
        size = tl.sqrt(X * X + X_im * X_im)
        add_whole(gradient + row * D + HALF + d, 3 * strength * size * X_im, inside)
    add_whole(gradient + row * D + d, 3 * strength * size * X, inside)
    tl.store(touched + row, 1)


@triton.jit
def penalise(
    head, relation, tail, rows, relations, g_rows, g_relations, touched, relation_touched, strength,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Add the penalty's gradient of one triple to those of its rows."""
    i = tl.program_id(0)
    h, r, t = tl.load(head + i), tl.load(relation + i), tl.load(tail + i)
    penalise_row(h, rows, g_rows, touched, strength, D, BLOCK, KIND)
    penalise_row(t, rows, g_rows, touched, strength, D, BLOCK, KIND)
    penalise_row(r, relations, g_relations, relation_touched, strength, D, BLOCK, KIND)
