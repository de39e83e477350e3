"""The cached softmax compiled for CPUs: candidates of queries, weights, and the new cache."""

import numpy as np
from numba import njit

from nscaching.kernels import random
from nscaching.kernels.codes import DOT, TOP, UNIFORM
from nscaching.kernels.cpu.meeting import pull, score
from nscaching.kernels.cpu.random import COMPILE, INLINE, bits, gumbel, stream_of
from nscaching.kernels.cpu.refresh import LARGEST, keep, sort, threshold
from nscaching.kernels.cpu.vectors import (
    ONE,
    ZERO,
    exp,
    exponentiate,
    least_of,
    most_of,
    multiply,
    sum_of,
)  # fmt: skip

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
    lengths = np.empty(count, np.float32)
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
        score(form, norm, q, rows, candidates[i], values)
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
        exponentiate(values, -most)
        exponentiate(others, log_weight - most)
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
        pull(form, norm, values, q, rows, candidates[i], by_query[i])


@njit(**COMPILE)
def store(fresh, key, cache):
    """Write rows [n, N1] to the cache; rows of the same key are the same but for rounding."""
    for i in range(key.size):
        for c in range(fresh.shape[1]):
            cache[key[i], c] = fresh[i, c]
