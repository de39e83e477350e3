"""Many candidates of a triple that its relation moves, compiled for CPUs: scores and gradients.

All candidates of a triple take the place of its head, or all of its tail: they share a query.
Gradients need two passes over the candidates: by triple, for the gradient of the query, and by
entity, for the gradient of the entity. The rows of both passes stay in the processor's cache; a
gradient for each candidate would not.
"""

import numpy as np
from numba import njit

from nscaching.kernels.cpu.forms import ask, project, project_back
from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.kernels.cpu.vectors import AHEAD, ONE, ZERO, add, distance, fetch


@njit(**COMPILE)
def score(
    begin, end, kind, norm, rows, shift, relations, directions,
    head, relation, tail, replace_head, candidates, out,
):  # fmt: skip
    """Score the candidates [B, K] of the triples [begin:end] → out [B, K]."""
    q, p = np.empty(rows.shape[1], np.float32), np.empty(rows.shape[1], np.float32)
    count = candidates.shape[1]
    for i in range(begin, end):
        a, r = tail[i] if replace_head[i] else head[i], relation[i]
        v = directions[r] if directions.size else relations[r]
        ask(kind, replace_head[i], rows[a], shift[a] if shift.size else ZERO, relations[r], v, q)
        for k in range(count):
            if k + AHEAD < count:
                fetch(rows, candidates[i, k + AHEAD])
            e = candidates[i, k]
            project(kind, rows[e], shift[e] if shift.size else ZERO, v, p)
            out[i, k] = -distance(q, p, norm)


@njit(**INLINE)
def slope_of(norm, slope, q, p, out):
    """Put slope·∂f by q − p into ``out``, with f = −‖q − p‖."""
    if norm == 1:
        for j in range(q.size):
            out[j] = -slope * np.sign(q[j] - p[j])
    else:
        length = distance(q, p, norm)
        scale = -slope / length if length > 0 else ZERO
        for j in range(q.size):
            out[j] = scale * (q[j] - p[j])


@njit(**COMPILE)
def by_query(
    begin, end, kind, norm, rows, shift, relations, directions,
    head, relation, tail, replace_head, candidates, slopes,
    query, g_anchor, g_anchor_shift, g_relation, g_direction, entity_active, active,
):  # fmt: skip
    """Sum slope·∂f over the candidates of the triples [begin:end], by anchor and relation.

    g_anchor [B, D] is by the row of the anchor, the entity that stays; entity_active [B, 1 + K]
    says whether anchor and candidates have a gradient, active [B] whether the relation has. The
    queries [B, D] are kept.
    """
    count, size = candidates.shape[1], rows.shape[1]
    room = np.zeros((5, size), np.float32)
    p, by_q, by_p, unused, no_direction = room[0], room[1], room[2], room[3], room[4]
    for i in range(begin, end):
        is_head, r, q = replace_head[i], relation[i], query[i]
        a = tail[i] if is_head else head[i]
        A, R = rows[a], relations[r]
        V = directions[r] if directions.size else R
        s_a = shift[a] if shift.size else ZERO
        ask(kind, is_head, A, s_a, R, V, q)
        by_q[:] = 0
        g_v = g_direction[i] if directions.size else no_direction
        g_v[:] = 0
        active[i] = False
        for k in range(count):
            entity_active[i, 1 + k] = slopes[i, k] != 0
            active[i] |= entity_active[i, 1 + k]
            if slopes[i, k] != 0:
                e = candidates[i, k]
                s_e = shift[e] if shift.size else ZERO
                extra = project(kind, rows[e], s_e, V, p)
                slope_of(norm, slopes[i, k], q, p, by_p)
                add(by_q, by_p)
                project_back(kind, -ONE, by_p, p, extra, rows[e], s_e, V, unused, g_v)
        entity_active[i, 0] = active[i]
        if not active[i]:
            continue
        g_a, g_r, sign = g_anchor[i], g_relation[i], -ONE if is_head else ONE
        for j in range(size):
            g_r[j] = sign * by_q[j]
        g_a[:] = 0
        extra = project(kind, A, s_a, V, p)
        by_s = project_back(kind, ONE, by_q, p, extra, A, s_a, V, g_a, g_v)
        if shift.size:
            g_anchor_shift[i] = by_s


@njit(**COMPILE)
def by_entity(
    begin, end, kind, norm, rows, shift, directions, relation, slopes,
    query, g_anchor, g_anchor_shift, touched, starts, order, g_entity, g_shift,
):  # fmt: skip
    """Sum the gradients by each of the entities touched[begin:end] → g_entity [entities, D].

    ``order`` lists their places in [B, 1 + K]: place 0 is the anchor, the others are candidates.
    """
    width, size = 1 + slopes.shape[1], rows.shape[1]
    room = np.zeros((3, size), np.float32)
    p, by_p, unused = room[0], room[1], room[2]
    for u in range(begin, end):
        e, by_s = touched[u], ZERO
        s_e = shift[e] if shift.size else ZERO
        g_entity[u] = 0
        for o in range(starts[u], starts[u + 1]):
            i, place = order[o] // width, order[o] % width
            if place == 0:
                add(g_entity[u], g_anchor[i])
                by_s += g_anchor_shift[i] if shift.size else ZERO
            elif slopes[i, place - 1] != 0:
                v = directions[relation[i]]
                extra = project(kind, rows[e], s_e, v, p)
                slope_of(norm, slopes[i, place - 1], query[i], p, by_p)
                by_s += project_back(
                    kind, -ONE, by_p, p, extra, rows[e], s_e, v, g_entity[u], unused
                )
        if shift.size:
            g_shift[u] = by_s
