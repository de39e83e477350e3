"""A vector meets rows of a table, compiled for CPUs: x·row or −‖x − row‖, and its slopes.

The loops over numbers stand in the loops over rows, and no row is assigned to a variable or passed
to a function: Numba would count the references to it, which takes longer than a row of a hundred
numbers.
"""

import numpy as np
from numba import njit

from nscaching.kernels.codes import DOT
from nscaching.kernels.cpu.random import INLINE
from nscaching.kernels.cpu.vectors import AHEAD, ONE, TINY, ZERO, fetch
from nscaching.models import MODULI


@njit(**INLINE)
def score(form, norm, x, rows, ids, values):
    """Put the scores of the rows ``ids`` [C] into ``values``."""
    half = x.size // 2
    for c in range(ids.size):
        if c + AHEAD < ids.size:
            fetch(rows, ids[c + AHEAD])
        e, total = ids[c], ZERO
        if form == DOT:
            for j in range(x.size):
                total += x[j] * rows[e, j]
            values[c] = total
        elif norm == 1:
            for j in range(x.size):
                total += abs(x[j] - rows[e, j])
            values[c] = -total
        elif norm == MODULI:
            for j in range(half):
                real, imaginary = x[j] - rows[e, j], x[half + j] - rows[e, half + j]
                total += np.sqrt(real * real + imaginary * imaginary)
            values[c] = -total
        else:
            for j in range(x.size):
                difference = x[j] - rows[e, j]
                total += difference * difference
            values[c] = -np.sqrt(total)


@njit(**INLINE)
def score_shifted(norm, x, rows, shift, direction, unit, ids, values):
    """Put −‖x − (row + s·v)‖ of the rows ``ids`` [C] into ``values``.

    v is the direction; s the row's own shift, or −v·row where there are none. Shifted rows are
    scaled to unit length if ``unit``.
    """
    for c in range(ids.size):
        if c + AHEAD < ids.size:
            fetch(rows, ids[c + AHEAD])
        e, s, scale, total = ids[c], ZERO, ONE, ZERO
        if shift.size:
            s = shift[e]
        else:
            for j in range(x.size):
                s -= direction[j] * rows[e, j]
        if unit:
            square = ZERO
            for j in range(x.size):
                shifted = rows[e, j] + s * direction[j]
                square += shifted * shifted
            scale = ONE / max(np.sqrt(square), TINY)
        if norm == 1:
            for j in range(x.size):
                total += abs(x[j] - scale * (rows[e, j] + s * direction[j]))
            values[c] = -total
        else:
            for j in range(x.size):
                difference = x[j] - scale * (rows[e, j] + s * direction[j])
                total += difference * difference
            values[c] = -np.sqrt(total)


@njit(**INLINE)
def pull(form, norm, slopes, x, rows, ids, total):
    """Add Σ slope·∂score by x to ``total``, of the rows ``ids`` [C]."""
    c, half = 0, x.size // 2
    while form == DOT and c + 4 <= ids.size:  # four at once: the sums are loaded less often
        s0, s1, s2, s3 = slopes[c], slopes[c + 1], slopes[c + 2], slopes[c + 3]
        e0, e1, e2, e3 = ids[c], ids[c + 1], ids[c + 2], ids[c + 3]
        for j in range(x.size):
            one, other = s0 * rows[e0, j] + s1 * rows[e1, j], s2 * rows[e2, j] + s3 * rows[e3, j]
            total[j] += one + other
        c += 4
    for at in range(c, ids.size):
        slope, e = slopes[at], ids[at]
        if slope == 0:
            continue
        if form == DOT:
            for j in range(x.size):
                total[j] += slope * rows[e, j]
        elif norm == 1:
            for j in range(x.size):
                difference = x[j] - rows[e, j]
                up = slope if difference < 0 else ZERO
                down = slope if difference > 0 else ZERO
                total[j] += up - down
        elif norm == MODULI:
            for j in range(half):
                real, imaginary = x[j] - rows[e, j], x[half + j] - rows[e, half + j]
                modulus = np.sqrt(real * real + imaginary * imaginary)
                steep = slope / modulus if modulus > 0 else ZERO
                total[j] -= steep * real
                total[half + j] -= steep * imaginary
        else:
            square = ZERO
            for j in range(x.size):
                difference = x[j] - rows[e, j]
                square += difference * difference
            steep = slope / np.sqrt(square) if square > 0 else ZERO
            for j in range(x.size):
                total[j] -= steep * (x[j] - rows[e, j])
