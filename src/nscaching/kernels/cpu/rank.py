"""Distances of all pairs and the counts behind a rank, compiled for CPUs."""

import numpy as np
from numba import njit

from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.models import MODULI

# Rows that fit a core's cache while every query passes over them.
BLOCK = 64


@njit(**COMPILE)
def distances(begin, end, query, rows, norm, out):
    """Put ‖q − e‖ of the queries [begin:end] and all rows into out [n, E].

    A block of rows is transposed, so that one number of the query meets many rows at once. Four
    numbers of the query are taken together: the sums are loaded and stored less often.
    """
    size = query.shape[1]
    whole = size - size % 4
    transposed = np.zeros((size, BLOCK), np.float32)
    total = np.empty(BLOCK, np.float32)
    for first in range(0, rows.shape[0], BLOCK):
        width = min(BLOCK, rows.shape[0] - first)
        for j in range(width):
            for d in range(size):
                transposed[d, j] = rows[first + j, d]
        for i in range(begin, end):
            total[:] = 0
            q = query[i]
            if norm == MODULI:
                for d in range(size // 2):
                    _add_modulus(total, q[d], q[size // 2 + d], transposed, d, size // 2 + d)
            else:
                for d in range(0, whole, 4):
                    _add_four(total, q[d], q[d + 1], q[d + 2], q[d + 3], transposed, d, norm)
                for d in range(whole, size):
                    for j in range(BLOCK):
                        difference = q[d] - transposed[d, j]
                        total[j] += abs(difference) if norm == 1 else difference * difference
            if norm == 2:
                for j in range(BLOCK):
                    total[j] = np.sqrt(total[j])
            for j in range(width):
                out[i, first + j] = total[j]


@njit(**COMPILE)
def slopes(begin, end, weight, query, rows, norm, out):
    """Add Σₑ weight·∂‖q − e‖/∂q of the queries [begin:end] to out [n, D].

    In norm 2 the weight is divided by the distance already. A block of rows stays in the core's
    cache while every query passes over the block.
    """
    size = query.shape[1]
    half = size // 2
    for first in range(0, rows.shape[0], BLOCK):
        last = min(first + BLOCK, rows.shape[0])
        for i in range(begin, end):
            q, total = query[i], out[i]
            for j in range(first, last):
                w, row = weight[i, j], rows[j]
                if norm == 1:
                    for d in range(size):
                        difference = q[d] - row[d]
                        total[d] += w * (np.float32(difference > 0) - np.float32(difference < 0))
                elif norm == 2:
                    for d in range(size):
                        total[d] += w * (q[d] - row[d])
                else:
                    for d in range(half):
                        real, imaginary = q[d] - row[d], q[half + d] - row[half + d]
                        modulus = np.sqrt(real * real + imaginary * imaginary)
                        part = w / modulus if modulus > 0 else np.float32(0)
                        total[d] += part * real
                        total[half + d] += part * imaginary


@njit(**INLINE)
def _add_four(total, q0, q1, q2, q3, transposed, d, norm):
    for j in range(BLOCK):
        d0, d1 = q0 - transposed[d, j], q1 - transposed[d + 1, j]
        d2, d3 = q2 - transposed[d + 2, j], q3 - transposed[d + 3, j]
        if norm == 1:
            total[j] += (abs(d0) + abs(d1)) + (abs(d2) + abs(d3))
        else:
            total[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)


@njit(**INLINE)
def _add_modulus(total, q_re, q_im, transposed, re, im):
    for j in range(BLOCK):
        d_re, d_im = q_re - transposed[re, j], q_im - transposed[im, j]
        total[j] += np.sqrt(d_re * d_re + d_im * d_im)


@njit(**COMPILE)
def count(begin, end, scores, answer, targets, known_start, known_end, known, first, out):
    """Count scores above the answer's, equal to it, and non-finite in rows [begin:end] → [3, n].

    Column j is entity first + j.
    """
    for i in range(begin, end):
        row, target, right = scores[i], targets[i], answer[i] - first
        above, level, wrong = 0, 0, 0
        for e in range(row.size):
            above += row[e] > target
            level += row[e] == target
            wrong += not (abs(row[e]) <= np.float32(3.4028235e38))
        if 0 <= right < row.size:  # the answer itself
            above -= row[right] > target
            level -= row[right] == target
        for o in range(known_start[i], known_end[i]):
            e = known[o] - first
            if e != right:
                above -= row[e] > target
                level -= row[e] == target
        out[0, i], out[1, i], out[2, i] = above, level, wrong
