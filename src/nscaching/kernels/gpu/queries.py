"""Query vectors, and the way back of their gradients, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import COMPLEX, DISTMULT, conj_times, times
from nscaching.kernels.gpu.slots import slot_of
from nscaching.kernels.gpu.step import add_whole


@triton.jit
def ask(
    anchor, relation, rows, relations, query, OF_HEADS,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Make the query [D] of an anchor and a relation; the first OF_HEADS ask for heads."""
    i = tl.program_id(0).to(tl.int64)
    a, r = tl.load(anchor + i).to(tl.int64) * D, tl.load(relation + i).to(tl.int64) * D
    sign = tl.where(i < OF_HEADS, -1.0, 1.0)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if KIND == COMPLEX else D)
    A = tl.load(rows + a + d, inside, 0.0)
    R = tl.load(relations + r + d, inside, 0.0)
    if KIND == DISTMULT:
        Q = A * R
    elif KIND == COMPLEX:
        A_im = tl.load(rows + a + HALF + d, inside, 0.0)
        R_im = sign * tl.load(relations + r + HALF + d, inside, 0.0)
        Q, Q_im = times(A, A_im, R, R_im)
        tl.store(query + i * D + HALF + d, Q_im, inside)
    else:
        Q = A + sign * R
    tl.store(query + i * D + d, Q, inside)


@triton.jit
def ask_back(
    anchor, relation, by_query, rows, relations, g_rows, g_relations,
    slots, owners, relation_owners, cubes, OF_HEADS,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Take the gradient by a query back to anchor and relation; the anchor of query i is place i.

    With the penalty of cubes, λ·|a|³ + λ/2·|r|³: each triple has two queries.
    """
    i = tl.program_id(0).to(tl.int64)
    a_id, r_id = tl.load(anchor + i).to(tl.int64), tl.load(relation + i).to(tl.int64)
    a, r = a_id * D, r_id * D
    to_a = slot_of(slots, owners, a_id, i, i >= 0, COMPACT) * D
    slot_of(relation_owners, relation_owners, r_id, r_id, i >= 0, False)
    sign = tl.where(i < OF_HEADS, -1.0, 1.0)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if KIND == COMPLEX else D)
    A = tl.load(rows + a + d, inside, 0.0)
    R = tl.load(relations + r + d, inside, 0.0)
    W = tl.load(by_query + i * D + d, inside, 0.0)
    if KIND == COMPLEX:
        A_im = tl.load(rows + a + HALF + d, inside, 0.0)
        R_im = tl.load(relations + r + HALF + d, inside, 0.0)
        W_im = tl.load(by_query + i * D + HALF + d, inside, 0.0)
        by_a, by_a_im = conj_times(R, sign * R_im, W, W_im)
        by_r, by_r_im = conj_times(A, A_im, W, W_im)
        of_a = 3 * cubes * tl.sqrt(A * A + A_im * A_im)
        of_r = 1.5 * cubes * tl.sqrt(R * R + R_im * R_im)
        by_r_im = sign * by_r_im + of_r * R_im
        add_whole(g_rows + to_a + HALF + d, by_a_im + of_a * A_im, inside)
        add_whole(g_relations + r + HALF + d, by_r_im, inside)
    else:
        of_a, of_r = 3 * cubes * tl.abs(A), 1.5 * cubes * tl.abs(R)
        if KIND == DISTMULT:
            by_a, by_r = W * R, W * A
        else:
            by_a, by_r = W, sign * W
    add_whole(g_rows + to_a + d, by_a + of_a * A, inside)
    add_whole(g_relations + r + d, by_r + of_r * R, inside)
