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
def step(heads, tails, first_head, first_tail, entity, random_bits):
    """Choose a triple that holds the entity, and return the other end."""
    of_heads = first_head[entity + 1] - first_head[entity]
    of_tails = first_tail[entity + 1] - first_tail[entity]
    below = np.uint64(np.int64(of_heads) + np.int64(of_tails))
    place = np.int64((np.uint64(random_bits) * below) >> np.uint64(32))
    if place < of_heads:
        return heads[first_head[entity] + place]
    return tails[first_tail[entity] + place - of_heads]


@njit(**INLINE)
def walk(heads, tails, first_head, first_tail, stream, anchor, head, n1):
    """Put where walks from the anchor end behind the N1 cached; repeats become the first cached."""
    for c in range(n1, head.size):
        number = np.uint32(2 * (c - n1))
        found = step(heads, tails, first_head, first_tail, anchor, bits(stream, number))
        if (c - n1) % 2 == 1:
            more = bits(stream, number + np.uint32(1))
            found = step(heads, tails, first_head, first_tail, found, more)
        again = 0
        for other in range(c):
            again += head[other] == found
        head[c] = head[0] if again else found


@njit(**INLINE)
def choose(head, values, tail, tail_values, strategy, temperature, noise, ids, scores, fresh):
    """Keep the best of the head and the tail, in order, in ``fresh`` [N1].

    The first N1 of the head are the cached, all different; only what is better than the worst of
    them can enter. What stands in the head has no score in the tail.
    """
    n1, share = fresh.size, ONE
    others = tail_values
    if strategy == TOP:
        for c in range(head.size):
            scores[c] = values[c]
    else:
        others = scores[head.size + tail.size + 1 :]
        share = ZERO if strategy == UNIFORM else ONE / np.float32(temperature)
        for c in range(head.size):
            scores[c] = share * values[c] + gumbel(bits(noise, head[c]))
        for k in range(tail.size):
            others[k] = gumbel(bits(noise, tail[k]))
        for k in range(tail.size):
            if tail_values[k] == NOTHING:
                others[k] = NOTHING
            elif strategy != UNIFORM:
                others[k] += share * tail_values[k]
    for c in range(head.size):
        scores[c] = min(max(scores[c], -LARGEST), LARGEST)
        ids[c] = head[c]
    least, count = least_of(scores[:n1]), n1
    for c in range(n1, head.size):
        ids[count], scores[count] = ids[c], scores[c]
        count += head[c] != head[0] and scores[c] > least
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
            fresh[c] = head[c]
    else:
        keep(fresh, ids, scores, count, threshold(scores, count, n1))
        sort(fresh)


@njit(**COMPILE)
def meet(
    begin, end, form, norm, weights, log_weight, negligible, answer, anchor, heads, tails, key,
    number, of_heads, graph_heads, graph_tails, first_head, first_tail, head_walk, tail_walk,
    query, rows, tail, where, tail_slopes, refreshing, strategy, temperature, head_noise,
    tail_noise, candidates, slopes, active, losses, by_query, fresh,
):  # fmt: skip
    """Compare the queries [begin:end] with answer, cached entities and tail.

    candidates [2B, 1 + H] become answer and head: N1 cached entities, and where walks through the
    graph end. slopes [2B, 1 + H] become the slopes of the losses by their scores, ``active``
    whether these are not zero, by_query [2B, D] the sums of slope·∂f by the queries. An entity of
    the head whose share of the probability of all false answers is not above ``negligible`` has no
    slope. tail_slopes [2B, K] hold the dots or distances of the
    tail before, and the slopes by these afterwards, in norm 2 divided by the distances. where [|E|]
    says at which place of the tail an entity stands, or −1. The first ``of_heads`` use the cache
    of the heads. fresh [2B, N1] become the new rows of the caches.
    """
    n1, size, count = heads.shape[1], candidates.shape[1] - 1, tail.size
    ids = np.empty(size + count + 1, np.int32)
    scores = np.empty(size + 2 * count + 1, np.float32)
    lengths = np.empty(count, np.float32)
    for i in range(begin, end):
        head, others, values, q = candidates[i, 1:], tail_slopes[i], slopes[i], query[i]
        t, k, w = answer[i], key[i], weights[i]
        candidates[i, 0] = t
        if i < of_heads:
            for c in range(n1):
                head[c] = heads[k, c]
        else:
            for c in range(n1):
                head[c] = tails[k, c]
        if size > n1:
            start = stream_of(head_walk if i < of_heads else tail_walk, number[i])
            walk(graph_heads, graph_tails, first_head, first_tail, start, anchor[i], head, n1)
        score(form, norm, q, rows, candidates[i], values)
        multiply(values, w)
        if form != DOT:
            lengths[:] = others
        multiply(others, w if form == DOT else -w)
        for c in range(size):
            if where[head[c]] >= 0:
                others[where[head[c]]] = NOTHING
        if refreshing:
            noise = np.uint32(0)
            if strategy != TOP:
                noise = stream_of(head_noise if i < of_heads else tail_noise, number[i])
            choose(
                head, values[1:], tail, others, strategy, temperature, noise, ids, scores,
                fresh[i],
            )  # fmt: skip
        true = values[0]
        if where[t] >= 0:
            others[where[t]] = NOTHING
        for c in range(size):
            if head[c] == t or (c >= n1 and head[c] == head[0]):
                values[1 + c] = NOTHING
        most = max(most_of(values), most_of(others) + log_weight)
        values[0] = NOTHING
        exponentiate(values, -most)
        exponentiate(others, log_weight - most)
        rivals = sum_of(values) + sum_of(others)
        total = rivals + exp(true - most)
        losses[i] = most - true + np.log(total)
        slope = w / total
        least = negligible * rivals
        for c in range(1 + size):
            values[c] = slope * values[c] if values[c] > least else ZERO
        values[0] = -slope * rivals
        multiply(others, slope if form == DOT else -slope)
        if form != DOT and norm == 2:
            for u in range(count):
                others[u] = others[u] / lengths[u] if lengths[u] > 0 else ZERO
        for c in range(1 + size):
            active[i, c] = values[c] != 0
        by_query[i] = 0
        pull(form, norm, values, q, rows, candidates[i], by_query[i])


@njit(**COMPILE)
def store(fresh, key, cache):
    """Write rows [n, N1] to the cache; rows of the same key are the same but for rounding."""
    for i in range(key.size):
        for c in range(fresh.shape[1]):
            cache[key[i], c] = fresh[i, c]
