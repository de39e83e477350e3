"""Many candidates of a triple, compiled for GPUs: their scores, and gradients by given slopes.

All candidates of a triple take the place of its head, or all of its tail: they share a query, whose
gradient is summed before it is taken back to the anchor and the relation.
"""

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import COMPLEX, DISTMULT, TRANSD, TRANSE, conj_times, times
from nscaching.kernels.gpu.scores import scores
from nscaching.kernels.gpu.slots import slot_of
from nscaching.kernels.gpu.step import add_whole, length, project, project_back, slope_of


@triton.jit
def score(
    head, relation, tail, replace_head, candidates, rows, relations, directions, shift, out, K,
    C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Score C of the candidates [B, K] of one triple → out [B, K]."""
    i = tl.program_id(0).to(tl.int64)
    replace = tl.load(replace_head + i)
    lane = tl.program_id(1) * C + tl.arange(0, C)
    valid = lane < K
    place = tl.load(candidates + i * K + lane, valid, 0)
    anchor = tl.where(replace, tl.load(tail + i), tl.load(head + i))
    value = scores(
        place, valid, i, anchor, tl.load(relation + i), tl.where(replace, -1.0, 1.0),
        rows, rows, relations, directions, shift, rows, rows,
        C, D, CHUNK, KIND, FORM, NORM, UNIT, HAS_SHIFT,
    )  # fmt: skip
    tl.store(out + i * K + lane, value, valid)


@triton.jit
def match_many(
    a, r, replace, candidates, slopes, first, last, place, rows, relations, g_rows, g_relations,
    slots, owners,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Add the gradients of DistMult or ComplEx; return the steepest slope."""
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if KIND == COMPLEX else D)
    A = tl.load(rows + a * D + d, inside, 0.0)
    R = tl.load(relations + r * D + d, inside, 0.0)
    none = tl.zeros([BLOCK], tl.float32)
    steepest = 0.0
    # The score is linear in the candidate: f = q·e, and Σ slope·e is what the query needs.
    Q = A * R
    if KIND == COMPLEX:
        A_im = tl.load(rows + a * D + HALF + d, inside, 0.0)
        R_im = tl.load(relations + r * D + HALF + d, inside, 0.0)
        for_head, for_head_im = conj_times(R, R_im, A, A_im)
        for_tail, for_tail_im = times(A, A_im, R, R_im)
        Q = tl.where(replace, for_head, for_tail)
        Q_im = tl.where(replace, for_head_im, for_tail_im)
        W_im = none
    W = none
    for k in range(first, last):
        e = tl.load(candidates + k).to(tl.int64)
        slope = tl.load(slopes + k)
        steepest = tl.maximum(steepest, tl.abs(slope))
        live = inside & (none + tl.abs(slope) > 0)
        e_slot = slot_of(slots, owners, e, place + 1 + k, tl.abs(slope) > 0, COMPACT)
        W += slope * tl.load(rows + e * D + d, live, 0.0)
        add_whole(g_rows + e_slot * D + d, slope * Q, live)
        if KIND == COMPLEX:
            W_im += slope * tl.load(rows + e * D + HALF + d, live, 0.0)
            add_whole(g_rows + e_slot * D + HALF + d, slope * Q_im, live)
    active = inside & (none + steepest > 0)
    a_slot = slot_of(slots, owners, a, place, steepest > 0, COMPACT)
    if KIND == DISTMULT:
        by_a, by_r = W * R, W * A
    else:
        by_tail, by_tail_im = times(W, W_im, R, R_im)
        by_head, by_head_im = conj_times(R, R_im, W, W_im)
        by_a = tl.where(replace, by_tail, by_head)
        by_a_im = tl.where(replace, by_tail_im, by_head_im)
        by_r, for_head_im = conj_times(W, W_im, A, A_im)
        _, for_tail_im = conj_times(A, A_im, W, W_im)
        by_r_im = tl.where(replace, for_head_im, for_tail_im)
        add_whole(g_rows + a_slot * D + HALF + d, by_a_im, active)
        add_whole(g_relations + r * D + HALF + d, by_r_im, active)
    add_whole(g_rows + a_slot * D + d, by_a, active)
    add_whole(g_relations + r * D + d, by_r, active)
    return steepest


@triton.jit
def translate_many(
    a, r, replace, candidates, slopes, first, last, place,
    rows, shift, relations, directions, g_rows, g_shift, g_relations, g_directions, slots, owners,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, NORM: tl.constexpr,
    COMPACT: tl.constexpr,
):  # fmt: skip
    """Add the gradients of TransE, TransH or TransD; return the steepest slope."""
    d = tl.arange(0, BLOCK)
    inside = d < D
    A = tl.load(rows + a * D + d, inside, 0.0)
    R = tl.load(relations + r * D + d, inside, 0.0)
    none = tl.zeros([BLOCK], tl.float32)
    steepest = 0.0
    V = R if KIND == TRANSE else tl.load(directions + r * D + d, inside, 0.0)
    s_a = tl.load(shift + a) if KIND == TRANSD else 0.0
    p_a, s_a, c_a = project(A, s_a, V, KIND)
    by_r = none
    by_v = none
    to_a = none
    for k in range(first, last):
        e = tl.load(candidates + k).to(tl.int64)
        slope = tl.load(slopes + k)
        steepest = tl.maximum(steepest, tl.abs(slope))
        live = inside & (none + tl.abs(slope) > 0)
        e_slot = slot_of(slots, owners, e, place + 1 + k, tl.abs(slope) > 0, COMPACT)
        Z = tl.load(rows + e * D + d, live, 0.0)
        s_e = tl.load(shift + e) if KIND == TRANSD else 0.0
        p_e, s_p, c_e = project(Z, s_e, V, KIND)
        difference = tl.where(replace, p_e + R - p_a, p_a + R - p_e)
        value = -length(tl.where(inside, difference, 0.0), NORM)
        steep = tl.where(live, slope_of(difference, value, slope, NORM), 0.0)
        by_r += steep
        to_e = tl.where(replace, steep, -steep)  # a tail enters with a minus
        to_a -= to_e
        by_e, v_e, of_e = project_back(to_e, p_e, s_p, c_e, Z, V, KIND)
        add_whole(g_rows + e_slot * D + d, by_e, live)
        if KIND != TRANSE:
            by_v += v_e
        if KIND == TRANSD:
            add_whole(g_shift + e_slot, of_e, tl.abs(slope) > 0)
    by_a, v_a, of_a = project_back(to_a, p_a, s_a, c_a, A, V, KIND)
    active = inside & (none + steepest > 0)
    a_slot = slot_of(slots, owners, a, place, steepest > 0, COMPACT)
    if KIND != TRANSE:
        add_whole(g_directions + r * D + d, by_v + v_a, active)
    if KIND == TRANSD:
        add_whole(g_shift + a_slot, of_a, steepest > 0)
    add_whole(g_rows + a_slot * D + d, by_a, active)
    add_whole(g_relations + r * D + d, by_r, active)
    return steepest


@triton.jit
def gradients(
    head, relation, tail, replace_head, candidates, slopes, K, SHARE,
    rows, shift, relations, directions, g_rows, g_shift, g_relations, g_directions,
    slots, owners, relation_owners,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, NORM: tl.constexpr,
    COMPACT: tl.constexpr,
):  # fmt: skip
    """Add slope·∂f of SHARE of the candidates [B, K] of one triple to the gradients of its rows.

    A triple has 1 + K places: of its anchor and of the candidates.
    """
    i = tl.program_id(0).to(tl.int64)
    replace = tl.load(replace_head + i)
    r = tl.load(relation + i).to(tl.int64)
    a = tl.where(replace, tl.load(tail + i), tl.load(head + i)).to(tl.int64)
    place = i * (1 + K)
    first = tl.program_id(1) * SHARE
    last = tl.minimum(first + SHARE, K)
    if (KIND == DISTMULT) or (KIND == COMPLEX):
        steepest = match_many(
            a, r, replace, candidates + i * K, slopes + i * K, first, last, place,
            rows, relations, g_rows, g_relations, slots, owners, D, BLOCK, KIND, COMPACT,
        )  # fmt: skip
    else:
        steepest = translate_many(
            a, r, replace, candidates + i * K, slopes + i * K, first, last, place,
            rows, shift, relations, directions, g_rows, g_shift, g_relations, g_directions,
            slots, owners, D, BLOCK, KIND, NORM, COMPACT,
        )  # fmt: skip
    slot_of(relation_owners, relation_owners, r, r, steepest > 0, False)
