"""Query vectors compiled for CPUs: made of rows, their way back, and gradients by entity."""

import numpy as np
from numba import njit

from nscaching.kernels.codes import TRANSE
from nscaching.kernels.cpu import forms
from nscaching.kernels.cpu.meeting import pull
from nscaching.kernels.cpu.random import COMPILE
from nscaching.kernels.cpu.vectors import ONE, ZERO, add, fetch

AT_ONCE = 64  # queries that are fetched together


@njit(**COMPILE)
def ask(begin, end, kind, of_heads, rows, relations, anchor, relation, query):
    """Make the queries [begin:end] → query [2B, D]; the first ``of_heads`` ask for heads."""
    for i in range(begin, end):
        r = relations[relation[i]]
        forms.ask(kind, i < of_heads, rows[anchor[i]], ZERO, r, r, query[i])


@njit(**COMPILE)
def ask_back(
    begin, end, kind, of_heads, cubes, share, rows, relations, anchor, relation, by_query,
    g_anchor, g_relation,
):  # fmt: skip
    """Take the gradients by the queries [begin:end] back to g_anchor and g_relation [n, D].

    With the penalty of cubes, λ·|a|³ + share·λ·|r|³.
    """
    for i in range(begin, end):
        A, R, g_a, g_r = rows[anchor[i]], relations[relation[i]], g_anchor[i], g_relation[i]
        if kind == TRANSE:
            sign = -ONE if i < of_heads else ONE
            for j in range(g_a.size):
                g_a[j] = by_query[i, j]
                g_r[j] = sign * by_query[i, j]
        else:
            forms.ask_back(kind, i < of_heads, by_query[i], A, R, g_a, g_r)
        if cubes > 0:
            forms.penalise(kind, cubes, A, g_a)
            forms.penalise(kind, share * cubes, R, g_r)


@njit(**COMPILE)
def by_entity(
    begin, end, form, norm, rows, query, given, slopes, asking, different, touched, starts, order,
    g_entity,
):  # fmt: skip
    """Sum the gradients by each touched entity whose first place is in [begin:end] → g_entity.

    The places are the rows ``given``, which are gradients, then the candidates [n, C], whose
    queries are ``asking`` [n·C]; if that is empty, the i-th query has the i-th row of candidates.
    """
    width, flat = slopes.shape[1], slopes.ravel()
    first = np.searchsorted(starts[:different], begin)
    last = np.searchsorted(starts[:different], end)
    ids, some = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.float32)
    for u in range(first, last):
        e, total, o, stop = touched[u], g_entity[u], starts[u], starts[u + 1]
        total[:] = 0
        while o < stop and order[o] < given.shape[0]:
            add(total, given[order[o]])
            o += 1
        while o < stop:
            count = min(AT_ONCE, stop - o)
            for c in range(count):
                place = order[o + c] - given.shape[0]
                ids[c] = asking[place] if asking.size else place // width
                some[c] = flat[place]
            for c in range(count):
                fetch(query, ids[c])
            pull(form, norm, some[:count], rows[e], query, ids[:count], total)
            o += count
