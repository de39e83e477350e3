"""Scores, loss and gradients of triples with one negative each, compiled for CPUs.

A gradient by a normalized row is first summed over the batch and then taken back to the parameter,
once per row, right before Adam moves the parameter and the row is normalized again.
"""

import numpy as np
from numba import njit

from nscaching.kernels.codes import DISTMULT, TRANSE
from nscaching.kernels.cpu.forms import penalise, project, project_back
from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.kernels.cpu.vectors import ONE, ZERO, conj_times, times

# Translational models: f = −‖P(h) + r − P(t)‖ with a projection P.


@njit(**INLINE)
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


@njit(**INLINE)
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


# Semantic matching models: f is linear in each of h, r and t. Rows of ComplEx are [real |
# imaginary].


@njit(**INLINE)
def match(kind, h, r, t):
    total = ZERO
    if kind == DISTMULT:
        for i in range(h.size):
            total += h[i] * r[i] * t[i]
        return total
    d = h.size // 2
    for i in range(d):
        re, im = times(h[i], h[d + i], r[i], r[d + i])
        total += re * t[i]
        total += im * t[d + i]
    return total


@njit(**INLINE)
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
        by_h, by_h_im = conj_times(r_re, r_im, t_re, t_im)
        by_r, by_r_im = conj_times(h_re, h_im, t_re, t_im)
        by_t, by_t_im = times(h_re, h_im, r_re, r_im)
        g_h[i] += by_h
        g_h[d + i] += by_h_im
        g_r[i] += by_r
        g_r[d + i] += by_r_im
        g_t[i] += slope * by_t
        g_t[d + i] += slope * by_t_im


@njit(**INLINE)
def softplus(x):
    return max(x, ZERO) + np.log1p(np.exp(-abs(x)))


@njit(**INLINE)
def sigmoid(x):
    return ONE / (ONE + np.exp(-x))


@njit(**INLINE)
def learn(positive, negative, margin, logistic_zero):
    """Return loss, whether it still teaches, and its derivatives by both scores."""
    if margin >= 0:
        loss = np.float32(margin) - positive + negative
        loss = ZERO if loss <= 0 else loss  # unlike max, which hides NaN
        down = ONE if loss > 0 else ZERO
        return loss, loss > 0, -down, down
    wrong = softplus(negative)
    loss = softplus(-positive) + wrong
    return loss, wrong > np.float32(logistic_zero), -sigmoid(-positive), sigmoid(negative)


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
    room = np.empty((6, rows.shape[1]), np.float32)
    p_h, p_t, difference = room[0], room[1], room[2]
    n_h, n_t, n_difference = room[3], room[4], room[5]
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
        loss[i], teaching[i], up, down = learn(positive, negative, margin, logistic_zero)
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
        if not translational:
            match_back(kind, up, H, R, T, g_h, g_relation[i], g_t)
            match_back(kind, down, X, R, Y, g_x, g_relation[i], g_y)
            if cubes > 0:
                penalise(kind, cubes, H, g_h)
                penalise(kind, cubes, T, g_t)
                penalise(kind, cubes, R, g_relation[i])
            continue
        g_v = difference
        if directions.size:
            g_v = g_direction[i]
            g_v[:] = 0
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
