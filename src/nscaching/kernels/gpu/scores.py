"""Scores of the candidates of a query, for draws and refreshes, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import COMPLEX, GIVEN, TRANSD, TRANSE, TRANSH, times
from nscaching.kernels.gpu.rank import MODULI


@triton.jit
def shift_of_anchor(a, shift, v, D: tl.constexpr, CHUNK: tl.constexpr, KIND: tl.constexpr):
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


@triton.jit
def shifts_of_candidates(
    e, place, valid, v, shift,
    C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Return s and c [C] of the projections c·(e + s·v) of the candidates' rows at ``e``."""
    s = tl.zeros([C], tl.float32)
    if HAS_SHIFT:
        s = tl.load(shift + place, valid, 0.0)
    else:
        for d0 in tl.static_range(0, D, CHUNK):
            d = d0 + tl.arange(0, CHUNK)
            v_d = tl.load(v + d, d < D, 0.0)
            inside = valid[:, None] & (d < D)[None, :]
            e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
            s -= tl.sum(v_d[None, :] * e_d, 1)
    scale = tl.full([C], 1.0, tl.float32)
    if UNIT:
        square = tl.zeros([C], tl.float32)
        for d0 in tl.static_range(0, D, CHUNK):
            d = d0 + tl.arange(0, CHUNK)
            v_d = tl.load(v + d, d < D, 0.0)
            inside = valid[:, None] & (d < D)[None, :]
            e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
            e_d += s[:, None] * v_d[None, :]
            square += tl.sum(e_d * e_d, 1)
        scale = 1.0 / tl.maximum(tl.sqrt(square), 1e-12)
    return s, scale


@triton.jit
def scores(
    place, valid, i, a_id, r_id, sign,
    rows, anchors, relations, directions, shift, query, directions_given,
    C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Score the candidates ``place`` [C] for an anchor and a relation.

    FORM is 0 dot, 1 distance, 2 shifted distance. rows [E, D] are those of candidates, which may be
    rounded, anchors [E, D] those of queries; of KIND GIVEN the query is row i of ``query``. The
    sign of the relation is +1 for tails and −1 for heads.
    """
    value = tl.zeros([C], tl.float32)
    a_id, r_id = tl.cast(a_id, tl.int64), tl.cast(r_id, tl.int64)  # times D, more than 32 bits
    a = anchors + a_id * D
    r = relations + r_id * D
    v = directions_given + i * D if KIND == GIVEN else directions + r_id * D
    a_shift = tl.load(shift + a_id) if KIND == TRANSD else 0.0
    s, scale = shift_of_anchor(a, a_shift, v, D, CHUNK, KIND)
    e = rows + place * D
    if FORM == 2:
        s_e, scale_e = shifts_of_candidates(e, place, valid, v, shift, C, D, CHUNK, UNIT, HAS_SHIFT)
    HALF: tl.constexpr = D // 2
    PAIRS: tl.constexpr = (KIND == COMPLEX) or ((FORM == 1) and (NORM == MODULI))
    END: tl.constexpr = HALF if PAIRS else D
    for d0 in tl.static_range(0, END, CHUNK):
        d = d0 + tl.arange(0, CHUNK)
        inner = d < END
        inside = valid[:, None] & inner[None, :]
        e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
        if KIND == GIVEN:
            q_d = tl.load(query + i * D + d, inner, 0.0)
        else:
            a_d = tl.load(a + d, inner, 0.0)
            r_d = tl.load(r + d, inner, 0.0)
            if KIND == COMPLEX:
                a_im = tl.load(a + HALF + d, inner, 0.0)
                r_im = sign * tl.load(r + HALF + d, inner, 0.0)
                e_im = tl.load(e[:, None] + HALF + d[None, :], inside, 0.0).to(tl.float32)
                q_d, q_im = times(a_d, a_im, r_d, r_im)
                value += tl.sum(e_im * q_im[None, :], 1)
            elif KIND == TRANSE:
                q_d = a_d + sign * r_d
            elif (KIND == TRANSH) or (KIND == TRANSD):
                q_d = scale * (a_d + s * tl.load(v + d, inner, 0.0))
                q_d += sign * r_d
            else:
                q_d = a_d * r_d
        if FORM == 0:
            value += tl.sum(e_d * q_d[None, :], 1)
        else:
            if FORM == 2:
                v_d = tl.load(v + d, inner, 0.0)
                e_d = scale_e[:, None] * (e_d + s_e[:, None] * v_d[None, :])
            difference = tl.where(inner[None, :], q_d[None, :] - e_d, 0.0)
            if NORM == MODULI:
                q_im = tl.load(query + i * D + HALF + d, inner, 0.0)
                e_im = tl.load(e[:, None] + HALF + d[None, :], inside, 0.0).to(tl.float32)
                other = tl.where(inner[None, :], q_im[None, :] - e_im, 0.0)
                value -= tl.sum(tl.sqrt(difference * difference + other * other), 1)
            elif NORM == 1:
                value -= tl.sum(tl.abs(difference), 1)
            else:
                value += tl.sum(difference * difference, 1)
    if (FORM != 0) and (NORM == 2):
        value = -tl.sqrt(value)
    return value
