"""Scores, loss and gradients compiled for CPUs, for the models whose gradients are here.

All work on ready rows: unit vectors where the model scales its vectors, the parameters themselves
where it does not. A gradient by a ready row is first summed over the batch and then taken back to
the parameter, once per row, right before Adam moves it and the row is made ready again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from nscaching.kernels.codes import COMPLEX, DISTMULT, TRANSE, TRANSH
from nscaching.kernels.cpu.random import COMPILE
from nscaching.kernels.cpu.refresh import dot

__all__ = ["ask", "gradients", "penalise", "project", "project_back", "queries"]

TINY = np.float32(1e-12)  # the least length that a vector is divided by
ZERO, ONE = np.float32(0), np.float32(1)


# Translational models: f = −‖P(h) + r − P(t)‖ with a projection P.


@njit(**COMPILE)
def project(kind, row, shift, v, out):
    """Put P(e) into ``out``; return what its gradient needs besides."""
    if kind == TRANSE:
        for i in range(row.size):
            out[i] = row[i]
        return ONE
    if kind == TRANSH:
        along = dot(row, v)
        for i in range(row.size):
            out[i] = row[i] - along * v[i]
        return along
    # A loop that both stores and sums is compiled twice, and where its arrays lie decides which
    # runs: the sum would not be the same, to the last bit, in every run.
    for i in range(row.size):
        out[i] = row[i] + shift * v[i]
    scale = ONE / max(np.sqrt(dot(out, out)), TINY)
    for i in range(row.size):
        out[i] *= scale
    return scale


@njit(**COMPILE)
def project_back(kind, sign, g, projected, extra, row, shift, v, g_row, g_v):
    """Take the gradient sign·g by P(e) to e and v, adding to g_row and g_v; return that by s.

    What was in ``projected`` is lost.
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
    # As above, no loop both stores and sums. P(e) is not needed any more: its place serves.
    along, change = dot(g, projected), projected
    for i in range(row.size):
        change[i] = sign * extra * (g[i] - along * projected[i])
    for i in range(row.size):
        g_row[i] += change[i]
        g_v[i] += shift * change[i]
    return dot(change, v)


@njit(**COMPILE)
def translate(kind, norm, h, shift_h, r, v, t, shift_t, p_h, p_t, difference):
    """Return the score of a triple and the extras of its projections; keep the difference."""
    extra_h = project(kind, h, shift_h, v, p_h)
    extra_t = project(kind, t, shift_t, v, p_t)
    total = ZERO
    for i in range(h.size):
        difference[i] = p_h[i] + r[i] - p_t[i]
    if norm == 1:
        for i in range(h.size):
            total += abs(difference[i])
    else:
        for i in range(h.size):
            total += difference[i] * difference[i]
        total = np.sqrt(total)
    return -total, extra_h, extra_t


@njit(**COMPILE)
def translate_back(
    kind, norm, slope, score, h, shift_h, v, t, shift_t, p_h, p_t, extra_h, extra_t, difference,
    g_h, g_r, g_v, g_t,
):  # fmt: skip
    """Add slope·∂f to the gradients; return those by the shifts of head and tail."""
    if norm == 1:
        for i in range(h.size):
            difference[i] = -slope * np.sign(difference[i])
    else:
        scale = slope / score if score < 0 else ZERO  # the score is minus the length
        for i in range(h.size):
            difference[i] *= scale
    for i in range(h.size):
        g_r[i] += difference[i]
    by_h = project_back(kind, ONE, difference, p_h, extra_h, h, shift_h, v, g_h, g_v)
    by_t = project_back(kind, -ONE, difference, p_t, extra_t, t, shift_t, v, g_t, g_v)
    return by_h, by_t


# Semantic matching models: f is linear in each of h, r and t.


@njit(**COMPILE)
def match(kind, h, r, t):
    total = ZERO
    if kind == DISTMULT:
        for i in range(h.size):
            total += h[i] * r[i] * t[i]
        return total
    d = h.size // 2  # rows are [real | imaginary]
    for i in range(d):
        total += (h[i] * r[i] - h[d + i] * r[d + i]) * t[i]
        total += (h[i] * r[d + i] + h[d + i] * r[i]) * t[d + i]
    return total


@njit(**COMPILE)
def match_back(kind, slope, h, r, t, g_h, g_r, g_t):
    """Add slope·∂f to the gradients."""
    if kind == DISTMULT:
        for i in range(h.size):
            g_h[i] += slope * r[i] * t[i]
            g_r[i] += slope * h[i] * t[i]
            g_t[i] += slope * h[i] * r[i]
        return
    d = h.size // 2
    for i in range(d):
        h_re, h_im, r_re, r_im = h[i], h[d + i], r[i], r[d + i]
        t_re, t_im = slope * t[i], slope * t[d + i]
        g_h[i] += r_re * t_re + r_im * t_im
        g_h[d + i] += r_re * t_im - r_im * t_re
        g_r[i] += h_re * t_re + h_im * t_im
        g_r[d + i] += h_re * t_im - h_im * t_re
        g_t[i] += slope * (h_re * r_re - h_im * r_im)
        g_t[d + i] += slope * (h_re * r_im + h_im * r_re)


@njit(**COMPILE)
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


@njit(**COMPILE)
def softplus(x):
    return max(x, ZERO) + np.log1p(np.exp(-abs(x)))


@njit(**COMPILE)
def sigmoid(x):
    return ONE / (ONE + np.exp(-x))


@njit(**COMPILE)
def gradients(
    begin, end, kind, norm, margin, logistic_zero, cubes, rows, shift, relations, directions,
    head, relation, tail, negative_head, negative_tail,
    g_entity, g_shift, g_relation, g_direction, active, loss, teaching,
):  # fmt: skip
    """Score the triples [begin:end] and their negatives; keep the gradients of each triple apart.

    g_entity [B, 3, D] is by the rows of head, tail and the negative's entity; g_shift [B, 3] by
    their shifts. A margin below zero stands for the logistic loss; ``cubes`` is the 3-norm's λ.
    """
    size = rows.shape[1]
    p_h, p_t, difference = (
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
    )
    n_h, n_t, n_difference = (
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
    )
    translational = kind >= TRANSE
    for i in range(begin, end):
        h, t, r = head[i], tail[i], relation[i]
        x, y = negative_head[i], negative_tail[i]
        H, T, X, Y, R = rows[h], rows[t], rows[x], rows[y], relations[r]
        V = directions[r] if directions.size else R
        s_h, s_t, s_x, s_y = ZERO, ZERO, ZERO, ZERO
        if shift.size:
            s_h, s_t, s_x, s_y = shift[h], shift[t], shift[x], shift[y]
        if translational:
            positive, e_h, e_t = translate(kind, norm, H, s_h, R, V, T, s_t, p_h, p_t, difference)
            negative, e_x, e_y = translate(kind, norm, X, s_x, R, V, Y, s_y, n_h, n_t, n_difference)
        else:
            positive, negative = match(kind, H, R, T), match(kind, X, R, Y)
        if margin >= 0:
            short = np.float32(margin) - positive + negative
            loss[i] = ZERO if short <= 0 else short  # unlike max, which hides what is no number
            teaching[i] = loss[i] > 0
            up = -ONE if teaching[i] else ZERO  # ∂loss by the score of the positive
            down = -up  # … and of the negative
        else:
            wrong = softplus(negative)
            loss[i] = softplus(-positive) + wrong
            teaching[i] = wrong > np.float32(logistic_zero)
            up, down = -sigmoid(-positive), sigmoid(negative)
        if x == h and y == t:  # the negative is the positive: together, so that they cancel
            up, down = up + down, ZERO
        active[i] = up != 0 or down != 0 or cubes > 0
        if not active[i]:
            continue
        g_entity[i] = 0
        g_relation[i] = 0
        # Where in g_entity [3] the negative's head and tail belong.
        at_x, at_y = (2, 1) if x != h else (0, 2)
        g_h, g_t, g_x, g_y = g_entity[i, 0], g_entity[i, 1], g_entity[i, at_x], g_entity[i, at_y]
        if translational:
            if directions.size:
                g_direction[i] = 0
            g_v = g_direction[i] if directions.size else difference
            by_h, by_t = translate_back(
                kind, norm, up, positive, H, s_h, V, T, s_t, p_h, p_t, e_h, e_t, difference,
                g_h, g_relation[i], g_v, g_t,
            )  # fmt: skip
            by_x, by_y = translate_back(
                kind, norm, down, negative, X, s_x, V, Y, s_y, n_h, n_t, e_x, e_y, n_difference,
                g_x, g_relation[i], g_v, g_y,
            )  # fmt: skip
            if shift.size:
                g_shift[i] = 0
                g_shift[i, 0] += by_h
                g_shift[i, 1] += by_t
                g_shift[i, at_x] += by_x
                g_shift[i, at_y] += by_y
        else:
            match_back(kind, up, H, R, T, g_h, g_relation[i], g_t)
            match_back(kind, down, X, R, Y, g_x, g_relation[i], g_y)
            if cubes > 0:
                penalise(kind, cubes, H, g_h)
                penalise(kind, cubes, T, g_t)
                penalise(kind, cubes, R, g_relation[i])


@njit(**COMPILE)
def ask(kind, is_head, row, shift, r, v, q):
    """Make the query vector of an anchor's row and a relation when head or tail is asked for."""
    sign = -ONE if is_head else ONE
    if kind == DISTMULT:
        for j in range(q.size):
            q[j] = row[j] * r[j]
    elif kind == COMPLEX:
        d = q.size // 2
        for j in range(d):
            r_re, r_im = r[j], sign * r[d + j]
            q[j] = row[j] * r_re - row[d + j] * r_im
            q[d + j] = row[j] * r_im + row[d + j] * r_re
    else:
        project(kind, row, shift, v, q)
        for j in range(q.size):
            q[j] += sign * r[j]


@njit(**COMPILE)
def queries(begin, end, kind, is_head, rows, shift, relations, directions, anchor, relation, out):
    """Make the query vectors [begin:end] of (anchor, relation) when head or tail is asked for."""
    for i in range(begin, end):
        a, r = anchor[i], relation[i]
        v = directions[r] if directions.size else relations[r]
        ask(kind, is_head, rows[a], shift[a] if shift.size else ZERO, relations[r], v, out[i])
