"""The cached softmax compiled for GPUs: candidates of queries, weights, and the new cache."""

import triton
import triton.language as tl

from nscaching.kernels import random
from nscaching.kernels.gpu.random import bits, gumbel, start_at, start_of, stream_of
from nscaching.kernels.gpu.scores import scores

SHUFFLES = tl.constexpr(random.SHUFFLES)
LAST = tl.constexpr(2147483647)  # larger than any id


@triton.jit
def tail(seeds, tick, out, E, K, PARTS, PURPOSE: tl.constexpr, BLOCK: tl.constexpr):
    """Write the tail [K] of a step: a part of a random order, which lasts for PARTS steps."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    step = tl.load(tick)
    start = start_at(seeds, PURPOSE, step // PARTS)
    place = (step % PARTS * K + i).to(tl.int32)
    zero = tl.zeros([BLOCK], tl.int32)
    for each in range(SHUFFLES):
        stream = stream_of(start, zero + each)
        pivot = tl.umulhi(bits(stream, zero), tl.full([BLOCK], E, tl.uint32)).to(tl.int32)
        partner = pivot - place
        partner = tl.where(partner < 0, partner + E, partner)
        coin = bits(stream, 1 + tl.maximum(place, partner)) >> 31
        place = tl.where(coin == 1, partner, place)
    tl.store(out + i, place.to(tl.int64), i < K)


@triton.jit
def step(heads, tails, first_head, first_tail, entity, random_bits):
    """Choose a triple that holds each entity, and return the other ends."""
    head, tail = tl.load(first_head + entity), tl.load(first_tail + entity)
    of_heads = tl.load(first_head + entity + 1) - head
    below = of_heads + tl.load(first_tail + entity + 1) - tail
    place = tl.umulhi(random_bits, below.to(tl.uint32)).to(tl.int32)
    to_head = place < of_heads
    found = tl.load(heads + head + place, to_head, 0)
    return tl.where(to_head, found, tl.load(tails + tail + place - of_heads, to_head == 0, 0))


@triton.jit
def walk(
    anchor, head_key, tail_key, head_number, tail_number, head_ids, tail_ids,
    heads, tails, first_head, first_tail, seeds, tick, out, B,
    N1: tl.constexpr, C: tl.constexpr, NEAR: tl.constexpr, BLOCK: tl.constexpr,
    HEAD_WALK: tl.constexpr, TAIL_WALK: tl.constexpr,
):  # fmt: skip
    """Write where walks from the anchor of a query end to out [2B, NEAR].

    One that is cached already, or that stands twice, is replaced by the first that is cached.
    """
    i = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, BLOCK)
    lane = tl.arange(0, C)
    if i < B:
        key = tl.load(head_key + i)
        stream = stream_of(start_of(seeds, HEAD_WALK, tick), tl.load(head_number + i))
        row = head_ids + key * N1
    else:
        key = tl.load(tail_key + i - B)
        stream = stream_of(start_of(seeds, TAIL_WALK, tick), tl.load(tail_number + i - B))
        row = tail_ids + key * N1
    start = tl.zeros([BLOCK], tl.int64) + tl.load(anchor + i)
    one = step(heads, tails, first_head, first_tail, start, bits(stream, 2 * m))
    two = step(heads, tails, first_head, first_tail, one, bits(stream, 2 * m + 1))
    found = tl.where(m % 2 == 0, one, two)
    cached = tl.load(row + lane, lane < N1, -1)
    again = tl.sum((found[:, None] == cached[None, :]).to(tl.int32), 1)
    earlier = (found[:, None] == found[None, :]) & (m[None, :] < m[:, None])
    again += tl.sum(earlier.to(tl.int32), 1)
    tl.store(out + i * NEAR + m, tl.where(again > 0, tl.load(row), found), m < NEAR)


@triton.jit
def head(
    answer, head_key, tail_key, head_ids, tail_ids, near, query, rows, candidates, out, B,
    N1: tl.constexpr, NEAR: tl.constexpr, C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr, UNIT: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Write answer and head of a query to candidates [2B, 1 + N1 + NEAR], scores to out."""
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    COUNT: tl.constexpr = 1 + N1 + NEAR
    valid = lane < COUNT
    place = tl.full([C], 0, tl.int64) + tl.load(answer + i)
    if N1 > 0:
        cached = (lane >= 1) & (lane <= N1)
        if i < B:
            ids = tl.load(head_ids + tl.load(head_key + i) * N1 + lane - 1, cached, 0)
        else:
            ids = tl.load(tail_ids + tl.load(tail_key + i - B) * N1 + lane - 1, cached, 0)
        place = tl.where(cached, ids.to(tl.int64), place)
    if NEAR > 0:
        walked = (lane > N1) & valid
        ids = tl.load(near + i * NEAR + lane - 1 - N1, walked, 0)
        place = tl.where(walked, ids.to(tl.int64), place)
    value = scores(
        place, valid, i, 0, 0, 1.0, rows, rows, rows, rows, rows, query, rows,
        C, D, CHUNK, KIND, FORM, NORM, UNIT, HAS_SHIFT,
    )  # fmt: skip
    tl.store(candidates + i * COUNT + lane, place.to(tl.int32), valid)
    tl.store(out + i * COUNT + lane, value, valid)


@triton.jit
def weigh(
    candidates, slopes, tail_ids, tail_slopes, weights, losses,
    head_key, tail_key, head_number, tail_number, head_owner, tail_owner, head_cache, tail_cache,
    seeds, tick, B, K, scale, log_weight, temperature, negligible,
    N1: tl.constexpr, NEAR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
    SEARCH: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, REFRESH: tl.constexpr, STRATEGY: tl.constexpr,
    HEAD_NOISE: tl.constexpr, TAIL_NOISE: tl.constexpr,
):  # fmt: skip
    """Turn the scores of a query's candidates into its loss and the slopes of the loss.

    slopes [2B, 1 + N1 + NEAR] and tail_slopes [2B, K] hold scores at first. The first candidate is
    the answer; the N1 cached are in ascending order, so that a search of SEARCH halvings finds
    which of the tail are cached. What follows is near in the graph, and no candidate where it is
    the first of the cached. Where the cache is refreshed, the best become the row of the key.
    """
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    k = tl.arange(0, BLOCK)
    COUNT: tl.constexpr = 1 + N1 + NEAR
    candidates += i * COUNT
    slopes += i * COUNT
    tail_slopes += i * K
    w = scale
    if HAS_WEIGHT:
        w *= tl.load(weights + i)
    answer = tl.load(candidates)
    true = w * tl.load(slopes)
    cached = (lane >= 1) & (lane < COUNT)
    c = tl.load(candidates + lane, cached, LAST)
    if NEAR > 0:
        cached = cached & ((lane <= N1) | (c != tl.load(candidates + 1)))
    value = w * tl.load(slopes + lane, cached, 0.0)
    there = k < K
    u = tl.load(tail_ids + k, there, LAST).to(tl.int32)
    tail_value = w * tl.load(tail_slopes + k, there, 0.0)
    if N1 > 0:
        low = tl.zeros([BLOCK], tl.int32)
        for step in tl.static_range(SEARCH):
            half = 1 << (SEARCH - 1 - step)
            probe = tl.load(candidates + 1 + low + half, there & (low + half < N1), LAST)
            low = tl.where(there & (probe <= u), low + half, low)
        there = there & (tl.load(candidates + 1 + low, there, LAST) != u)
    for m in tl.static_range(NEAR):
        there = there & (tl.load(candidates + 1 + N1 + m) != u)
    tl.debug_barrier()  # all warps have read the scores

    v = tl.where(cached & (c != answer), value, float("-inf"))
    v_tail = tl.where(there & (u != answer), tail_value + log_weight, float("-inf"))
    most = tl.maximum(tl.maximum(tl.max(v, 0), tl.max(v_tail, 0)), true)
    e, e_tail = tl.exp(v - most), tl.exp(v_tail - most)
    others = tl.sum(e, 0) + tl.sum(e_tail, 0)
    total = others + tl.exp(true - most)
    tl.store(losses + i, most - true + tl.log(total))
    e = tl.where(e > negligible * others, e, 0.0)
    slope = tl.where(lane == 0, -others, e) * (w / total)
    tl.store(slopes + lane, slope, lane < COUNT)
    tl.store(tail_slopes + k, e_tail * (w / total), k < K)

    if REFRESH:
        if i < B:
            key = tl.load(head_key + i)
            mine = tl.load(head_owner + key) == i
            row = head_cache + key * N1
        else:
            key = tl.load(tail_key + i - B)
            mine = tl.load(tail_owner + key) == i
            row = tail_cache + key * N1
        if mine:
            if STRATEGY == 0:
                value = value / temperature
                tail_value = tail_value / temperature
            if STRATEGY != 1:
                if i < B:
                    number = tl.load(head_number + i)
                    stream = stream_of(start_of(seeds, HEAD_NOISE, tick), number)
                else:
                    number = tl.load(tail_number + i - B)
                    stream = stream_of(start_of(seeds, TAIL_NOISE, tick), number)
                noise, tail_noise = gumbel(bits(stream, c)), gumbel(bits(stream, u))
                if STRATEGY == 0:
                    noise, tail_noise = value + noise, tail_value + tail_noise
                value, tail_value = noise, tail_noise
            keep(row, c, cached, value, u, there, tail_value, N1, C)


@triton.jit
def keep(row, c, cached, value, u, there, tail_value, N1: tl.constexpr, C: tl.constexpr):
    """Store the N1 of the head, here called cached, and the tail with the largest values, in order.

    There are N1 at least, as all in the head are different. How the threshold is found, ``refresh``
    explains.
    """
    value = tl.minimum(tl.maximum(value, -3.4028234e38), 3.4028234e38)
    tail_value = tl.minimum(tl.maximum(tail_value, -3.4028234e38), 3.4028234e38)
    high = tl.maximum(
        tl.max(tl.where(cached, value, float("-inf")), 0),
        tl.max(tl.where(there, tail_value, float("-inf")), 0),
    )
    # The head alone fills the row: the least that is kept is no less than the least of the head.
    low = tl.min(tl.where(cached, value, float("inf")), 0)
    middle = high
    going = low < high
    while going:
        count = tl.sum((cached & (value >= middle)).to(tl.int32), 0)
        count += tl.sum((there & (tail_value >= middle)).to(tl.int32), 0)
        low = tl.where(count >= N1, middle, low)
        high = tl.where(count >= N1, high, middle)
        middle = 0.5 * low + 0.5 * high
        going = (count != N1) & (low < middle) & (middle < high)
    above, tail_above = cached & (value > low), there & (tail_value > low)
    level, tail_level = cached & (value == low), there & (tail_value == low)
    room = N1 - tl.sum(above.to(tl.int32), 0) - tl.sum(tail_above.to(tl.int32), 0)
    kept = above | (level & (tl.cumsum(level.to(tl.int32), 0) <= room))
    room -= tl.sum(level.to(tl.int32), 0)
    tail_kept = tail_above | (tail_level & (tl.cumsum(tail_level.to(tl.int32), 0) <= room))
    slot = tl.cumsum(kept.to(tl.int32), 0) - 1
    tail_slot = tl.sum(kept.to(tl.int32), 0) + tl.cumsum(tail_kept.to(tl.int32), 0) - 1
    tl.store(row + slot, c, kept & (slot < N1))
    tl.store(row + tail_slot, u, tail_kept & (tail_slot < N1))
    tl.debug_barrier()  # all are stored
    lane = tl.arange(0, C)
    ids = tl.sort(tl.load(row + lane, lane < N1, LAST))
    tl.debug_barrier()  # all are loaded
    tl.store(row + lane, ids, lane < N1)
