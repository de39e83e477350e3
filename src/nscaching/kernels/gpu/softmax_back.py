"""The gradients of the cached softmax compiled for GPUs: from slopes back to queries and rows."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.rank import MODULI
from nscaching.kernels.gpu.slots import slot_of
from nscaching.kernels.gpu.step import add_whole


@triton.jit
def slope_back(Q, Q_im, X, X_im, slope, FORM: tl.constexpr, NORM: tl.constexpr):
    """Return slope·∂f by the query, of rows X [T, BLOCK] with slopes [T, 1].

    The imaginary part is of use where rows are complex numbers.
    """
    by = slope * X
    by_im = by
    if FORM != 0:
        difference = Q - X
        if NORM == MODULI:
            other = Q_im - X_im
            modulus = tl.sqrt(difference * difference + other * other)
            steep = tl.where(modulus > 0, slope / tl.where(modulus > 0, modulus, 1.0), 0.0)
            by, by_im = -steep * difference, -steep * other
        elif NORM == 1:
            by = -slope * tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, 0.0))
        else:
            length = tl.sqrt(tl.sum(difference * difference, 1))[:, None]
            by = difference * tl.where(length > 0, -slope / length, 0.0)
    return by, by_im


@triton.jit
def meet_back(
    query, candidates, slopes, rows, by_query,
    COUNT: tl.constexpr, T: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FORM: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Add Σ slope·∂f by one query to by_query, T candidates at a time."""
    i = tl.program_id(0).to(tl.int64)
    PAIRS: tl.constexpr = (FORM == 1) and (NORM == MODULI)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)[None, :]
    inside = d < (HALF if PAIRS else D)
    Q = tl.load(query + i * D + d, inside, 0.0)
    Q_im = tl.load(query + i * D + HALF + d, inside, 0.0) if PAIRS else Q
    total = tl.zeros([T, BLOCK], tl.float32)
    total_im = total
    for first in range(0, COUNT, T):
        at = first + tl.arange(0, T)
        slope = tl.load(slopes + i * COUNT + at, at < COUNT, 0.0)[:, None]
        e = tl.load(candidates + i * COUNT + at, at < COUNT, 0).to(tl.int64)[:, None] * D
        X = tl.load(rows + e + d, inside, 0.0)
        X_im = tl.load(rows + e + HALF + d, inside, 0.0) if PAIRS else X
        by, by_im = slope_back(Q, Q_im, X, X_im, slope, FORM, NORM)
        total += by
        total_im += by_im
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if PAIRS else D)
    out = by_query + i * D + d
    tl.store(out, tl.load(out, inside, 0.0) + tl.sum(total, 0), inside)
    if PAIRS:
        out += HALF
        tl.store(out, tl.load(out, inside, 0.0) + tl.sum(total_im, 0), inside)


@triton.jit
def rows_back(
    query, entity, place, slopes, rows, g_rows, slots, owners, begin, PLACES,
    COUNT: tl.constexpr, SHARE: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FORM: tl.constexpr, NORM: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Add slope·∂f by the rows of candidates to their gradients.

    The places [2B · COUNT] of candidates are sorted by entity: a program adds up SHARE of them, and
    adds a sum to the gradient of a row where the entity changes, which takes few atomic sums. Among
    the places of the step, those of candidates begin at ``begin``.
    """
    first = tl.program_id(0) * SHARE
    last = tl.minimum(first + SHARE, PLACES)
    PAIRS: tl.constexpr = (FORM == 1) and (NORM == MODULI)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)[None, :]
    inside = d < (HALF if PAIRS else D)
    total = tl.zeros([1, BLOCK], tl.float32)
    total_im = total
    e = tl.load(entity + first).to(tl.int64)
    for at in range(first, last):
        where = tl.load(place + at)
        slope = tl.load(slopes + where)
        i = where // COUNT * D
        Q = tl.load(query + i + d, inside, 0.0)
        if FORM == 0:
            total += slope * Q
        else:
            X = tl.load(rows + e * D + d, inside, 0.0)
            Q_im = tl.load(query + i + HALF + d, inside, 0.0) if PAIRS else Q
            X_im = tl.load(rows + e * D + HALF + d, inside, 0.0) if PAIRS else X
            by, by_im = slope_back(Q, Q_im, X, X_im, slope, FORM, NORM)
            total -= by
            total_im -= by_im
        following = tl.load(entity + at + 1, at + 1 < last, -1).to(tl.int64)
        if following != e:
            slot = slot_of(slots, owners, e, begin + at, e >= 0, COMPACT)
            add_whole(g_rows + slot * D + d, total, inside)
            total = tl.zeros([1, BLOCK], tl.float32)
            if PAIRS:
                add_whole(g_rows + slot * D + HALF + d, total_im, inside)
            total_im = tl.zeros([1, BLOCK], tl.float32)
        e = following


@triton.jit
def add_rows(
    ids, gradients, total, slots, owners, begin,
    D: tl.constexpr, BLOCK: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Add a row of gradients [n, D] to the gradient of the row with its id, of place begin + i."""
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + i).to(tl.int64)
    d = tl.arange(0, BLOCK)
    g = tl.load(gradients + i * D + d, d < D, 0.0)
    most = tl.max(tl.abs(g), 0)
    live = (d < D) & (most + tl.zeros([BLOCK], tl.float32) != 0)
    slot = slot_of(slots, owners, row, begin + i, most != 0, COMPACT)
    add_whole(total + slot * D + d, g, live)
