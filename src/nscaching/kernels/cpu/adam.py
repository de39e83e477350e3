"""The gradients of a batch summed for each row, and Adam and Adagrad, compiled for CPUs."""

import numpy as np
from numba import njit

from nscaching.kernels import optimizers
from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.kernels.cpu.vectors import ONE, TINY, ZERO, add, dot

# Shares of the new gradient in its mean and of its square in the mean square; β₂; ε.
FRESH_1, FRESH_2 = (np.float32(1 - beta) for beta in optimizers.BETAS)
BETA_2, EPSILON = np.float32(optimizers.BETAS[1]), np.float32(optimizers.EPSILON)
MANY = 1 << 15  # positions that are worth a count of 2¹⁶ digits
ADAGRAD_EPSILON = np.float32(optimizers.ADAGRAD_EPSILON)


@njit(**COMPILE)
def group(ids, active, order, spare, touched, starts):
    """Sort the positions in ids [B, n] by id; return how many different ids there are.

    The position of ids[i, j] is i·n + j; inactive rows are left out. The u-th id is touched[u],
    its positions are order[starts[u]:starts[u+1]], ascending. By radix, eleven or sixteen bits at
    a time: the time does not depend on how large ids can be.
    """
    flat, row, count, most = ids.ravel(), ids.shape[1], 0, 0
    for i in range(ids.shape[0]):
        if active[i]:
            for position in range(i * row, (i + 1) * row):
                order[count] = position
                count += 1
                most = max(most, flat[position])
    shift, width = 0, 16 if count > MANY else 11
    last = (1 << width) - 1
    places = np.empty(last + 2, np.int64)
    while count and (most >> shift) > 0:
        places[:] = 0
        for c in range(count):
            places[((flat[order[c]] >> shift) & last) + 1] += 1
        for digit in range(last + 1):
            places[digit + 1] += places[digit]
        for c in range(count):
            digit = (flat[order[c]] >> shift) & last
            spare[places[digit]] = order[c]
            places[digit] += 1
        order[:count] = spare[:count]
        shift += width
    different = 0
    for c in range(count):
        if c == 0 or flat[order[c]] != flat[order[c - 1]]:
            touched[different], starts[different] = flat[order[c]], c
            different += 1
    starts[different] = count
    return different


@njit(**INLINE)
def unit_back(g, normalized, row):
    """Take a gradient by a unit vector back to the vector that it was made of."""
    along = dot(g, normalized)
    scale = ONE / max(np.sqrt(dot(row, row)), TINY)
    for i in range(row.size):
        g[i] = scale * (g[i] - along * normalized[i])


@njit(**INLINE)
def make_unit(row, normalized):
    scale = ONE / max(np.sqrt(dot(row, row)), TINY)
    for i in range(row.size):
        normalized[i] = scale * row[i]


@njit(**INLINE)
def adam(row, mean, square, g, size, root, decay):
    """Move a row: size is lr/(1 − β₁ᵗ) and root 1/√(1 − β₂ᵗ), which make up for the start."""
    size, root, decay = np.float32(size), np.float32(root), np.float32(decay)
    for i in range(row.size):
        gradient = g[i] + decay * row[i]
        mean[i] += FRESH_1 * (gradient - mean[i])
        square[i] = BETA_2 * square[i] + FRESH_2 * gradient * gradient
        row[i] -= size * mean[i] / (np.sqrt(square[i]) * root + EPSILON)


@njit(**INLINE)
def adagrad(row, square, g, size, decay):
    """Move a row; a single square is that of the whole row, the mean of its numbers'."""
    size, decay = np.float32(size), np.float32(decay)
    if square.size < row.size:
        for i in range(row.size):
            g[i] += decay * row[i]
        square[0] += dot(g, g) / np.float32(row.size)
        size /= np.sqrt(square[0]) + ADAGRAD_EPSILON
        for i in range(row.size):
            row[i] -= size * g[i]
        return
    for i in range(row.size):
        gradient = g[i] + decay * row[i]
        square[i] += gradient * gradient
        row[i] -= size * gradient / (np.sqrt(square[i]) + ADAGRAD_EPSILON)


@njit(**INLINE)
def move(row, mean, square, g, size, root, decay):
    """Move a row by Adagrad if ``root`` is zero, else by Adam."""
    if root == 0:
        adagrad(row, square, g, size, decay)
    else:
        adam(row, mean, square, g, size, root, decay)


@njit(**COMPILE)
def update(
    begin, end, unit, different, touched, starts, order, gradients, g_shift,
    rows_only, size, root, decay, table, mean, square, normalized,
    projection, projection_mean, projection_square, shift, moved, squares,
):  # fmt: skip
    """Move the rows [begin:end] of a table; squares[u] is that of the gradient of touched[u].

    With rows_only the bounds count the rows that have a gradient, else all rows. A row that never
    had a gradient (``moved`` is 0) has no momentum: without weight decay it stays as it is.
    """
    g, g_projection = np.empty(table.shape[1], np.float32), np.empty(table.shape[1], np.float32)
    u = begin if rows_only else np.searchsorted(touched[:different], begin)
    for at in range(begin, end):
        e = touched[at] if rows_only else at
        first, last = 0, 0
        if u < different and touched[u] == e:
            first, last = starts[u], starts[u + 1]
            u += 1
        elif decay == 0 and not moved[e]:
            continue
        g[:] = 0
        row, by_shift = table[e], ZERO
        for o in range(first, last):
            add(g, gradients[order[o]])
            if shift.size:
                by_shift += g_shift[order[o]]
        if rows_only and by_shift == 0 and not g.any():
            continue
        if shift.size:  # s = w·e
            for i in range(g.size):
                g_projection[i] = by_shift * normalized[e, i]
                g[i] += by_shift * projection[e, i]
        if first < last:
            if unit:
                unit_back(g, normalized[e], row)
            squares[u - 1] = dot(g, g)
            if shift.size:
                squares[u - 1] += dot(g_projection, g_projection)
            moved[e] = 1
        move(row, mean[e], square[e], g, size, root, decay)
        if unit:
            make_unit(row, normalized[e])
        if shift.size:
            if not (rows_only and by_shift == 0):
                move(projection[e], projection_mean[e], projection_square[e], g_projection,
                     size, root, decay)  # fmt: skip
            shift[e] = dot(normalized[e], projection[e])
