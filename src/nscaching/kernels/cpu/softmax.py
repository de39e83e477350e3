"""The cached softmax compiled for CPUs: queries, their candidates, weights, and the new cache."""

import numpy as np
from numba import njit

from nscaching.kernels import random
from nscaching.kernels.codes import DOT, TOP, TRANSE, UNIFORM
from nscaching.kernels.cpu import forms
from nscaching.kernels.cpu.random import COMPILE, INLINE, bits, gumbel, stream_of
from nscaching.kernels.cpu.refresh import LARGEST, keep, score, sort, threshold
from nscaching.kernels.cpu.vectors import ONE, ZERO, add, distance, exp, fetch, least_of, most_of
from nscaching.models import MODULI

SHUFFLES = random.SHUFFLES
NOTHING = np.float32(-np.inf)  # the score of what is no candidate
SOME = 64  # entities of the tail of which mostly none is better than the worst cached


@njit(**COMPILE)
def tail(begin, end, start, first, entities, out):
    """Put what stands at the places first + [begin:end] of a random order into out [K]."""
    streams, pivots = np.empty(SHUFFLES, np.uint32), np.empty(SHUFFLES, np.int64)
    for each in range(SHUFFLES):
        streams[each] = stream_of(start, each)
        wide = np.uint64(bits(streams[each], 0)) * np.uint64(entities)
        pivots[each] = np.int64(wide >> np.uint64(32))
    for i in range(begin, end):
        place = np.int64(first + i)
        for each in range(SHUFFLES):
            partner = pivots[each] - place
            partner += entities if partner < 0 else 0
            coin = bits(streams[each], 1 + max(place, partner)) >> np.uint32(31)
            place = partner if coin == 1 else place
        out[i] = place


@njit(**COMPILE)
def ask(begin, end, kind, of_heads, rows, relations, anchor, relation, query):
    """Make the queries [begin:end] → query [2B, D]; the first ``of_heads`` ask for heads."""
    for i in range(begin, end):
        r = relations[relation[i]]
        forms.ask(kind, i < of_heads, rows[anchor[i]], ZERO, r, r, query[i])


@njit(**COMPILE)
def ask_back(
    begin, end, kind, of_heads, cubes, rows, relations, anchor, relation, by_query,
    g_anchor, g_relation,
):  # fmt: skip
    """Take the gradients by the queries [begin:end] back to g_anchor and g_relation [2B, D].

    With the penalty of cubes, λ·|a|³ + λ/2·|r|³: each triple has two queries.
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
            forms.penalise(kind, 0.5 * cubes, R, g_r)


@njit(**INLINE)
def pull(form, norm, slope, x, rows, e, total):
    """Add slope·∂f by x to ``total``; f is x·row or −‖x − row‖.

    The row is not assigned to a variable: Numba would count the references to it.
    """
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
        half = x.size // 2
        for j in range(half):
            real, imaginary = x[j] - rows[e, j], x[half + j] - rows[e, half + j]
            modulus = np.sqrt(real * real + imaginary * imaginary)
            steep = slope / modulus if modulus > 0 else ZERO
            total[j] -= steep * real
            total[half + j] -= steep * imaginary
    else:
        length = distance(x, rows[e], 2)
        steep = slope / length if length > 0 else ZERO
        for j in range(x.size):
            total[j] -= steep * (x[j] - rows[e, j])


@njit(**INLINE)
def pull_four(slope, rows, e, total):
    """Add slope·∂f by x for four products x·row at once: the sums are loaded less often."""
    s0, s1, s2, s3 = slope
    e0, e1, e2, e3 = e
    for j in range(total.size):
        one, other = s0 * rows[e0, j] + s1 * rows[e1, j], s2 * rows[e2, j] + s3 * rows[e3, j]
        total[j] += one + other


@njit(**INLINE)
def pull_all(form, norm, slopes, x, rows, ids, total):
    """Add Σ slope·∂f by x to ``total``, of some rows."""
    c = 0
    if form == DOT:
        while c + 4 <= ids.size:
            four = slopes[c], slopes[c + 1], slopes[c + 2], slopes[c + 3]
            pull_four(four, rows, (ids[c], ids[c + 1], ids[c + 2], ids[c + 3]), total)
            c += 4
    for at in range(c, ids.size):
        if slopes[at] != 0:
            pull(form, norm, slopes[at], x, rows, ids[at], total)


@njit(**INLINE)
def sum_of(values):
    total = ZERO
    for c in range(values.size):
        total += values[c]
    return total


@njit(**INLINE)
def multiply(values, factor):
    for c in range(values.size):
        values[c] *= factor


@njit(**INLINE)
def weigh(values, shift):
    """Turn scores into exp(score + shift)."""
    for c in range(values.size):
        values[c] = exp(values[c] + shift)


@njit(**INLINE)
def choose(cached, values, tail, tail_values, strategy, temperature, noise, ids, scores, fresh):
    """Keep the best of the cached entities, all different, and the tail, in order, in ``fresh``.

    Only what is better than the worst of the cached can enter. What is cached has no score in the
    tail.
    """
    n1 = cached.size
    if strategy == TOP:
        for c in range(n1):
            scores[c] = values[c]
        others = tail_values
    else:
        others = scores[n1 + tail.size + 1 :]
        share = ZERO if strategy == UNIFORM else ONE / np.float32(temperature)
        for c in range(n1):
            scores[c] = share * values[c] + gumbel(bits(noise, cached[c]))
        for k in range(tail.size):
            others[k] = gumbel(bits(noise, tail[k]))
        for k in range(tail.size):
            if tail_values[k] == NOTHING:
                others[k] = NOTHING
            elif strategy != UNIFORM:
                others[k] += share * tail_values[k]
    for c in range(n1):
        scores[c] = min(max(scores[c], -LARGEST), LARGEST)
        ids[c] = cached[c]
    least, count = least_of(scores[:n1]), n1
    for first in range(0, tail.size, SOME):
        last, better = min(first + SOME, tail.size), 0
        for k in range(first, last):
            better += others[k] > least
        if better:
            for k in range(first, last):
                ids[count], scores[count] = tail[k], min(others[k], LARGEST)
                count += others[k] > least
    if count == n1:
        for c in range(n1):
            fresh[c] = cached[c]
    else:
        keep(fresh, ids, scores, count, threshold(scores, count, n1))
        sort(fresh)


@njit(**COMPILE)
def meet(
    begin, end, form, norm, weights, log_weight, negligible, answer, heads, tails, key, of_heads,
    query, rows, tail, where, tail_slopes, refreshing, strategy, temperature, head_noise,
    tail_noise, candidates, slopes, active, losses, by_query, fresh,
):  # fmt: skip
    """Compare the queries [begin:end] with answer, cached entities and tail.

    candidates [2B, 1 + N1] become answer and cached entities, slopes [2B, 1 + N1] the slopes of
    the losses by their scores, ``active`` whether these are not zero, by_query [2B, D] the sums of
    slope·∂f by the queries. A cached entity whose share of the probability of all false answers
    is not above ``negligible`` has no slope. tail_slopes [2B, K] hold the dots or distances of the
    tail before, and the slopes by these afterwards, in norm 2 divided by the distances. where [|E|]
    says at which place of the tail an entity stands, or −1. The first ``of_heads`` use the cache
    of the heads. fresh [2B, N1] become the new rows of the caches.
    """
    n1, count = heads.shape[1], tail.size
    ids = np.empty(n1 + count + 1, np.int32)
    scores = np.empty(n1 + 2 * count + 1, np.float32)
    lengths, no_shift = np.empty(count, np.float32), np.empty(0, np.float32)
    for i in range(begin, end):
        cached, others, values, q = candidates[i, 1:], tail_slopes[i], slopes[i], query[i]
        t, k, w = answer[i], key[i], weights[i]
        candidates[i, 0] = t
        if i < of_heads:
            for c in range(n1):
                cached[c] = heads[k, c]
        else:
            for c in range(n1):
                cached[c] = tails[k, c]
        score(candidates[i], q, rows, form, norm, no_shift, q, False, values)
        multiply(values, w)
        if form != DOT:
            lengths[:] = others
        multiply(others, w if form == DOT else -w)
        for c in range(n1):
            if where[cached[c]] >= 0:
                others[where[cached[c]]] = NOTHING
        if refreshing:
            noise = np.uint32(0)
            if strategy != TOP:
                noise = stream_of(head_noise if i < of_heads else tail_noise, k)
            choose(
                cached, values[1:], tail, others, strategy, temperature, noise, ids, scores,
                fresh[i],
            )  # fmt: skip
        true = values[0]
        if where[t] >= 0:
            others[where[t]] = NOTHING
        for c in range(1, 1 + n1):
            if candidates[i, c] == t:
                values[c] = NOTHING
        most = max(most_of(values), most_of(others) + log_weight)
        values[0] = NOTHING
        weigh(values, -most)
        weigh(others, log_weight - most)
        rivals = sum_of(values) + sum_of(others)
        total = rivals + exp(true - most)
        losses[i] = most - true + np.log(total)
        slope = w / total
        least = negligible * rivals
        for c in range(1 + n1):
            values[c] = slope * values[c] if values[c] > least else ZERO
        values[0] = -slope * rivals
        multiply(others, slope if form == DOT else -slope)
        if form != DOT and norm == 2:
            for u in range(count):
                others[u] = others[u] / lengths[u] if lengths[u] > 0 else ZERO
        for c in range(1 + n1):
            active[i, c] = values[c] != 0
        by_query[i] = 0
        pull_all(form, norm, values, q, rows, candidates[i], by_query[i])


@njit(**COMPILE)
def by_entity(
    begin, end, form, norm, rows, query, given, slopes, different, touched, starts, order, g_entity
):
    """Sum the gradients by each touched entity whose first place is in [begin:end] → g_entity.

    The places are the rows ``given``, which are gradients, then the candidates [2B, 1 + N1].
    """
    width, flat = slopes.shape[1], slopes.ravel()
    first = np.searchsorted(starts[:different], begin)
    last = np.searchsorted(starts[:different], end)
    ids, some = np.empty(SOME, np.int64), np.empty(SOME, np.float32)
    for u in range(first, last):
        e, total, o, stop = touched[u], g_entity[u], starts[u], starts[u + 1]
        total[:] = 0
        while o < stop and order[o] < given.shape[0]:
            add(total, given[order[o]])
            o += 1
        while o < stop:
            count = min(SOME, stop - o)
            for c in range(count):
                place = order[o + c] - given.shape[0]
                ids[c], some[c] = place // width, flat[place]
            for c in range(count):
                fetch(query, ids[c])
            pull_all(form, norm, some[:count], rows[e], query, ids[:count], total)
            o += count


@njit(**COMPILE)
def store(fresh, key, cache):
    """Write rows [n, N1] to the cache; rows of the same key are the same but for rounding."""
    for i in range(key.size):
        for c in range(fresh.shape[1]):
            cache[key[i], c] = fresh[i, c]
