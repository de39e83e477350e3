"""The models compiled for CPUs: queries and projections, and gradients back through both.

All work on the vectors by which a model scores: scaled to unit length where the model does so, the
parameters themselves where it does not.
"""

import numpy as np
from numba import njit

from nscaching.kernels.codes import COMPLEX, DISTMULT, TRANSE, TRANSH
from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.kernels.cpu.vectors import ONE, TINY, ZERO, conj_times, dot, times


@njit(**INLINE)
def project(kind, row, shift, v, out):
    """Put P(e) of f = −‖P(h) + r − P(t)‖ into ``out``; return what its gradient needs besides."""
    if kind == TRANSE:
        for i in range(row.size):
            out[i] = row[i]
        return ONE
    if kind == TRANSH:
        along = dot(row, v)
        for i in range(row.size):
            out[i] = row[i] - along * v[i]
        return along
    for i in range(row.size):
        out[i] = row[i] + shift * v[i]
    scale = ONE / max(np.sqrt(dot(out, out)), TINY)
    for i in range(row.size):
        out[i] *= scale
    return scale


@njit(**INLINE)
def project_back(kind, sign, g, projected, extra, row, shift, v, g_row, g_v):
    """Take the gradient sign·g by P(e) to e and v, adding to g_row and g_v; return the one by s.

    ``projected`` is overwritten.
    """
    if kind == TRANSE:
        for i in range(row.size):
            g_row[i] += sign * g[i]
        return ZERO
    if kind == TRANSH:
        along = sign * dot(g, v)
        for i in range(row.size):
            g_row[i] += sign * g[i] - along * v[i]
            g_v[i] -= extra * sign * g[i] + along * row[i]
        return ZERO
    along, change = dot(g, projected), projected
    for i in range(row.size):
        change[i] = sign * extra * (g[i] - along * projected[i])
    for i in range(row.size):
        g_row[i] += change[i]
        g_v[i] += shift * change[i]
    return dot(change, v)


@njit(**INLINE)
def ask(kind, is_head, row, shift, r, v, q):
    """Make the query vector of an anchor's row and a relation when head or tail is asked for."""
    sign = -ONE if is_head else ONE  # a query for the head takes −r, or the conjugate of r
    if kind == DISTMULT:
        for j in range(q.size):
            q[j] = row[j] * r[j]
    elif kind == COMPLEX:
        d = q.size // 2
        for j in range(d):
            r_re, r_im = r[j], sign * r[d + j]
            q[j], q[d + j] = times(row[j], row[d + j], r_re, r_im)
    else:
        project(kind, row, shift, v, q)
        for j in range(q.size):
            q[j] += sign * r[j]


@njit(**INLINE)
def ask_back(kind, is_head, g_q, row, r, g_row, g_r):
    """Take the gradient by the query of DistMult or ComplEx back to anchor and relation."""
    if kind == DISTMULT:
        for i in range(g_q.size):
            g_row[i] = g_q[i] * r[i]
            g_r[i] = g_q[i] * row[i]
        return
    d = g_q.size // 2
    sign = -ONE if is_head else ONE
    for i in range(d):
        g_row[i], g_row[d + i] = conj_times(r[i], sign * r[d + i], g_q[i], g_q[d + i])
        g_re, g_im = conj_times(row[i], row[d + i], g_q[i], g_q[d + i])
        g_r[i], g_r[d + i] = g_re, sign * g_im


@njit(**COMPILE)
def queries(begin, end, kind, is_head, rows, shift, relations, directions, anchor, relation, out):
    for i in range(begin, end):
        a, r = anchor[i], relation[i]
        v = directions[r] if directions.size else relations[r]
        ask(kind, is_head, rows[a], shift[a] if shift.size else ZERO, relations[r], v, out[i])


@njit(**INLINE)
def penalise(kind, strength, row, g):
    """Add λ·∂|x|³ = 3λ·|x|·x to the gradient by a row, or by complex numbers of two halves."""
    thrice = np.float32(3) * np.float32(strength)
    if kind == COMPLEX:
        d = row.size // 2
        for i in range(d):
            size = thrice * np.sqrt(row[i] * row[i] + row[d + i] * row[d + i])
            g[i] += size * row[i]
            g[d + i] += size * row[d + i]
    else:
        for i in range(row.size):
            g[i] += thrice * abs(row[i]) * row[i]
