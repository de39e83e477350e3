"""Adam and Adagrad, and the sums of a step, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels import optimizers
from nscaching.kernels.gpu.step import UNITS

# Shares of the new gradient in its mean and of its square in the mean square; β₂; ε.
FRESH_1, FRESH_2 = (tl.constexpr(1 - beta) for beta in optimizers.BETAS)
BETA_2, EPSILON = tl.constexpr(optimizers.BETAS[1]), tl.constexpr(optimizers.EPSILON)
ADAGRAD_EPSILON = tl.constexpr(optimizers.ADAGRAD_EPSILON)
# A sum of squares has two whole numbers, in units of 2⁻¹⁰ and of 2⁻⁵⁰: see ``add_squares``.
HIGH, LOW = tl.constexpr(float(2**10)), tl.constexpr(float(2**50))
MOST_SQUARE = tl.constexpr(float(2**40))  # of a row, with room for 2¹³ such rows


@triton.jit
def add_squares(sums, square):
    """Add squares [ROWS] to sums [2], which are the same in whatever order programs add to them."""
    square = tl.minimum(square, MOST_SQUARE)
    high = tl.floor(square * HIGH)
    low = (square - high * (1.0 / HIGH)) * LOW
    some = tl.max(square, 0) > 0
    tl.atomic_add(sums, tl.sum(high.to(tl.int64), 0), some, sem="relaxed")
    tl.atomic_add(sums + 1, tl.sum(low.to(tl.int64), 0), some, sem="relaxed")


@triton.jit
def move(
    row, g, table, mean, square, n, at, inside, moving, size, root, lr, decay,
    D: tl.constexpr, ADAGRAD: tl.constexpr, ONE_NUMBER: tl.constexpr,
):  # fmt: skip
    """Move the ``moving`` rows of a table, in place; return all rows as they are then."""
    g = g + decay * row
    if ONE_NUMBER:
        moves = tl.max(moving.to(tl.int32), 1) > 0
        v = tl.load(square + n, moves, 0.0) + tl.sum(g * g, 1) * (1.0 / D)
        tl.store(square + n, v, moves)
        change = lr * g / (tl.sqrt(v) + ADAGRAD_EPSILON)[:, None]
    elif ADAGRAD:
        v = tl.load(square + at, inside, 0.0) + g * g
        tl.store(square + at, v, moving)
        change = lr * g / (tl.sqrt(v) + ADAGRAD_EPSILON)
    else:
        v = tl.load(square + at, inside, 0.0)
        m = tl.load(mean + at, inside, 0.0)
        m += FRESH_1 * (g - m)
        v = BETA_2 * v + FRESH_2 * g * g
        change = size * m / (tl.sqrt(v) * root + EPSILON)
        tl.store(mean + at, m, moving)
        tl.store(square + at, v, moving)
    row = tl.where(moving, row - change, row)
    tl.store(table + at, row, moving)
    return row


@triton.jit
def adam(
    table, mean, table_square, gradient, normalized, rounded,
    projection, projection_mean, projection_square, shift, g_shift,
    slots, owners, powers, squares, lr, decay, N,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, UNIT: tl.constexpr,
    SHIFTED: tl.constexpr, ROUNDED: tl.constexpr, ROWS_ONLY: tl.constexpr, LAST: tl.constexpr,
    ADAGRAD: tl.constexpr, ONE_NUMBER: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Move the rows of some slots by the sums of their gradients, which are set back to zero.

    N is the number of slots; powers [2] are β₁ᵗ and β₂ᵗ; the square of the gradients is added to
    squares [2].
    """
    slot = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = slot < N
    owner = tl.load(owners + slot, there, 0)
    mark = owner != 0
    n = slot
    if COMPACT:  # only rows that have a gradient have a slot
        n = tl.where(mark, owner - 1, 0).to(tl.int64)
    in_slot = slot[:, None] * D + d[None, :]
    at = n[:, None] * D + d[None, :]
    inside = there[:, None] & (d < D)[None, :]
    marked = mark[:, None] & inside
    inside = marked if ROWS_ONLY else inside
    size = (lr / (1.0 - tl.load(powers))).to(tl.float32)
    root = (1.0 / tl.sqrt(1.0 - tl.load(powers + 1))).to(tl.float32)
    g = tl.load(gradient + in_slot, marked, 0).to(tl.float32) * (1.0 / UNITS)
    by_shift = tl.zeros([ROWS], tl.float32)
    if SHIFTED:
        by_shift = tl.load(g_shift + slot, mark, 0).to(tl.float32) * (1.0 / UNITS)
    # Every warp reads the marks: no warp may clear a mark before all have read it.
    tl.debug_barrier()
    tl.store(gradient + in_slot, tl.zeros([ROWS, BLOCK], tl.int64), marked)
    if SHIFTED:
        tl.store(g_shift + slot, tl.zeros([ROWS], tl.int64), mark)
    if LAST:  # of the tables that share the marks
        tl.store(owners + slot, tl.zeros([ROWS], tl.int32), mark)
    if COMPACT:
        tl.store(slots + n, tl.zeros([ROWS], tl.int32), mark)
    p = tl.load(table + at, inside, 0.0)
    some = tl.max((g != 0).to(tl.int32), 1) > 0
    square = tl.zeros([ROWS], tl.float32)
    if SHIFTED:  # s = w·e
        w = tl.load(projection + at, inside, 0.0)
        e = tl.load(normalized + at, inside, 0.0)
        some = some | (by_shift != 0)
        g_w = by_shift[:, None] * e
        g += by_shift[:, None] * w
        square += tl.sum(g_w * g_w, 1)
    if UNIT:
        e = tl.load(normalized + at, inside, 0.0)
        scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(p * p, 1)), 1e-12)
        g = scale[:, None] * (g - tl.sum(g * e, 1)[:, None] * e)
    add_squares(squares, square + tl.sum(g * g, 1))
    moving = inside & some[:, None] if ROWS_ONLY else inside
    p = move(
        p, g, table, mean, table_square, n, at, inside, moving, size, root, lr, decay,
        D, ADAGRAD, ONE_NUMBER,
    )  # fmt: skip
    if UNIT:
        p *= (1.0 / tl.maximum(tl.sqrt(tl.sum(p * p, 1)), 1e-12))[:, None]
        tl.store(normalized + at, p, moving)
    if ROUNDED:
        tl.store(rounded + at, p.to(tl.bfloat16), moving)
    if SHIFTED:
        moving_w = inside & (by_shift != 0)[:, None] if ROWS_ONLY else inside
        w = move(
            w, g_w, projection, projection_mean, projection_square, n, at, inside, moving_w,
            size, root, lr, decay, D, ADAGRAD, ONE_NUMBER,
        )  # fmt: skip
        tl.store(shift + n, tl.sum(p * w, 1), mark if ROWS_ONLY else there)


PARTS = tl.constexpr(1024)


@triton.jit
def finish(losses, teachings, squares, sums, B):
    """Add loss, count of teaching triples and gradient norm of a step to sums [4], in order.

    The last counts the steps for which the sum of the losses was finite. The sums of squares [2]
    are set back to zero.
    """
    lane = tl.arange(0, PARTS)
    loss = tl.zeros([PARTS], tl.float64)
    teaching = tl.zeros([PARTS], tl.float64)
    for start in range(0, B, PARTS):
        i = start + lane
        loss += tl.load(losses + i, i < B, 0.0).to(tl.float64)
        teaching += tl.load(teachings + i, i < B, 0.0).to(tl.float64)
    high, low = tl.load(squares).to(tl.float64), tl.load(squares + 1).to(tl.float64)
    square = high / HIGH + low / LOW
    tl.debug_barrier()  # all warps have read the sums
    tl.store(squares, 0)
    tl.store(squares + 1, 0)
    total = tl.load(sums) + tl.sum(loss, 0)
    tl.store(sums, total)
    tl.store(sums + 1, tl.load(sums + 1) + tl.sum(teaching, 0))
    tl.store(sums + 2, tl.load(sums + 2) + tl.sqrt(square))
    good = tl.where(tl.abs(total) < float("inf"), 1.0, 0.0)
    tl.store(sums + 3, tl.load(sums + 3) + good)
