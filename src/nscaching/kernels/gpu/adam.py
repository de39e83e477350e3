"""Adam and Adagrad, and the sums of a step, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels import optimizers
from nscaching.kernels.gpu.step import UNITS

# Shares of the new gradient in its mean and of its square in the mean square; β₂; ε.
FRESH_1, FRESH_2 = (tl.constexpr(1 - beta) for beta in optimizers.BETAS)
BETA_2, EPSILON = tl.constexpr(optimizers.BETAS[1]), tl.constexpr(optimizers.EPSILON)
ADAGRAD_EPSILON = tl.constexpr(optimizers.ADAGRAD_EPSILON)


@triton.jit
def move(
    row, g, table, mean, square, at, inside, moving, size, root, lr, decay, ADAGRAD: tl.constexpr
):  # fmt: skip
    """Move the ``moving`` rows of a table, in place; return all rows as they are then."""
    v = tl.load(square + at, inside, 0.0)
    g = g + decay * row
    if ADAGRAD:
        v += g * g
        change = lr * g / (tl.sqrt(v) + ADAGRAD_EPSILON)
    else:
        m = tl.load(mean + at, inside, 0.0)
        m += FRESH_1 * (g - m)
        v = BETA_2 * v + FRESH_2 * g * g
        change = size * m / (tl.sqrt(v) * root + EPSILON)
        tl.store(mean + at, m, moving)
    row = tl.where(moving, row - change, row)
    tl.store(table + at, row, moving)
    tl.store(square + at, v, moving)
    return row


@triton.jit
def adam(
    table, mean, square, gradient, normalized, rounded,
    projection, projection_mean, projection_square, shift, g_shift,
    touched, powers, partial, first, lr, decay, N,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, UNIT: tl.constexpr,
    SHIFTED: tl.constexpr, ROUNDED: tl.constexpr, ROWS_ONLY: tl.constexpr, LAST: tl.constexpr,
    ADAGRAD: tl.constexpr,
):  # fmt: skip
    """Move some rows of a table by the sums of their gradients, which are set back to zero.

    powers [2] are β₁ᵗ and β₂ᵗ; partial[first + program] becomes the square of the gradients.
    """
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, BLOCK)
    there = n < N
    mark = tl.load(touched + n, there, 0) != 0
    at = n.to(tl.int64)[:, None] * D + d[None, :]
    inside = there[:, None] & (d < D)[None, :]
    marked = mark[:, None] & inside
    inside = marked if ROWS_ONLY else inside
    size = (lr / (1.0 - tl.load(powers))).to(tl.float32)
    root = (1.0 / tl.sqrt(1.0 - tl.load(powers + 1))).to(tl.float32)
    g = tl.load(gradient + at, marked, 0).to(tl.float32) * (1.0 / UNITS)
    by_shift = tl.zeros([ROWS], tl.float32)
    if SHIFTED:
        by_shift = tl.load(g_shift + n, mark, 0).to(tl.float32) * (1.0 / UNITS)
    # Every warp reads the marks: no warp may clear a mark before all have read it.
    tl.debug_barrier()
    tl.store(gradient + at, tl.zeros([ROWS, BLOCK], tl.int64), marked)
    if SHIFTED:
        tl.store(g_shift + n, tl.zeros([ROWS], tl.int64), mark)
    if LAST:  # of the tables that share the marks
        tl.store(touched + n, tl.zeros([ROWS], tl.int32), mark)
    p = tl.load(table + at, inside, 0.0)
    some = tl.max((g != 0).to(tl.int32), 1) > 0
    total = 0.0
    if SHIFTED:  # s = w·e
        w = tl.load(projection + at, inside, 0.0)
        e = tl.load(normalized + at, inside, 0.0)
        some = some | (by_shift != 0)
        g_w = by_shift[:, None] * e
        g += by_shift[:, None] * w
        total += tl.sum(tl.sum(g_w * g_w, 1), 0)
    if UNIT:
        e = tl.load(normalized + at, inside, 0.0)
        scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(p * p, 1)), 1e-12)
        g = scale[:, None] * (g - tl.sum(g * e, 1)[:, None] * e)
    total += tl.sum(tl.sum(g * g, 1), 0)
    tl.store(partial + first + tl.program_id(0), total)
    moving = inside & some[:, None] if ROWS_ONLY else inside
    p = move(p, g, table, mean, square, at, inside, moving, size, root, lr, decay, ADAGRAD)
    if UNIT:
        p *= (1.0 / tl.maximum(tl.sqrt(tl.sum(p * p, 1)), 1e-12))[:, None]
        tl.store(normalized + at, p, moving)
    if ROUNDED:
        tl.store(rounded + at, p.to(tl.bfloat16), moving)
    if SHIFTED:
        moving_w = inside & (by_shift != 0)[:, None] if ROWS_ONLY else inside
        w = move(
            w, g_w, projection, projection_mean, projection_square, at, inside, moving_w,
            size, root, lr, decay, ADAGRAD,
        )  # fmt: skip
        tl.store(shift + n, tl.sum(p * w, 1), mark if ROWS_ONLY else there)


PARTS = tl.constexpr(1024)


@triton.jit
def finish(losses, teachings, partial, sums, B, P):
    """Add loss, count of teaching triples and gradient norm of a step to sums [4], in order.

    The last counts the steps for which the sum of the losses was finite.
    """
    lane = tl.arange(0, PARTS)
    loss = tl.zeros([PARTS], tl.float64)
    teaching = tl.zeros([PARTS], tl.float64)
    square = tl.zeros([PARTS], tl.float64)
    for start in range(0, B, PARTS):
        i = start + lane
        loss += tl.load(losses + i, i < B, 0.0).to(tl.float64)
        teaching += tl.load(teachings + i, i < B, 0.0).to(tl.float64)
    for start in range(0, P, PARTS):
        i = start + lane
        square += tl.load(partial + i, i < P, 0.0).to(tl.float64)
    total = tl.load(sums) + tl.sum(loss, 0)
    tl.store(sums, total)
    tl.store(sums + 1, tl.load(sums + 1) + tl.sum(teaching, 0))
    tl.store(sums + 2, tl.load(sums + 2) + tl.sqrt(tl.sum(square, 0)))
    good = tl.where(tl.abs(total) < float("inf"), 1.0, 0.0)
    tl.store(sums + 3, tl.load(sums + 3) + good)
