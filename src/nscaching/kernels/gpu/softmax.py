"""The cached softmax compiled for GPUs: candidates of queries, weights, and the new cache."""

import triton
import triton.language as tl

from nscaching.kernels import random
from nscaching.kernels.gpu.random import bits, gumbel, start_at, start_of, stream_of
from nscaching.kernels.gpu.rank import MODULI
from nscaching.kernels.gpu.scores import scores
from nscaching.kernels.gpu.step import add_whole

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
def head(
    answer, head_key, tail_key, head_ids, tail_ids, query, rows, candidates, out, B,
    N1: tl.constexpr, C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr, UNIT: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
):  # fmt: skip
    """Write answer and cached entities of a query to candidates [2B, 1 + N1], scores to out."""
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    valid = lane <= N1
    place = tl.full([C], 0, tl.int64) + tl.load(answer + i)
    if N1 > 0:
        cached = (lane >= 1) & valid
        if i < B:
            ids = tl.load(head_ids + tl.load(head_key + i) * N1 + lane - 1, cached, 0)
        else:
            ids = tl.load(tail_ids + tl.load(tail_key + i - B) * N1 + lane - 1, cached, 0)
        place = tl.where(cached, ids.to(tl.int64), place)
    value = scores(
        place, valid, i, 0, 0, 1.0, rows, rows, rows, rows, rows, query, rows,
        C, D, CHUNK, KIND, FORM, NORM, UNIT, HAS_SHIFT,
    )  # fmt: skip
    tl.store(candidates + i * (1 + N1) + lane, place.to(tl.int32), valid)
    tl.store(out + i * (1 + N1) + lane, value, valid)


@triton.jit
def weigh(
    candidates, slopes, tail_ids, tail_slopes, weights, losses,
    head_key, tail_key, head_owner, tail_owner, head_cache, tail_cache, seeds, tick,
    B, K, scale, log_weight, temperature, negligible,
    N1: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, SEARCH: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, REFRESH: tl.constexpr, STRATEGY: tl.constexpr,
    HEAD_NOISE: tl.constexpr, TAIL_NOISE: tl.constexpr,
):  # fmt: skip
    """Turn the scores of a query's candidates into its loss and the slopes of the loss.

    slopes [2B, 1 + N1] and tail_slopes [2B, K] hold scores at first. The first candidate is the
    answer; the others are in ascending order, so that a search of SEARCH halvings finds which of
    the tail are cached. Where the cache is refreshed, the best become the row of the query's key.
    """
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    k = tl.arange(0, BLOCK)
    candidates += i * (1 + N1)
    slopes += i * (1 + N1)
    tail_slopes += i * K
    w = scale
    if HAS_WEIGHT:
        w *= tl.load(weights + i)
    answer = tl.load(candidates)
    true = w * tl.load(slopes)
    cached = (lane >= 1) & (lane <= N1)
    c = tl.load(candidates + lane, cached, LAST)
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
    tl.store(slopes + lane, slope, lane <= N1)
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
                    stream = stream_of(start_of(seeds, HEAD_NOISE, tick), key)
                else:
                    stream = stream_of(start_of(seeds, TAIL_NOISE, tick), key)
                noise, tail_noise = gumbel(bits(stream, c)), gumbel(bits(stream, u))
                if STRATEGY == 0:
                    noise, tail_noise = value + noise, tail_value + tail_noise
                value, tail_value = noise, tail_noise
            keep(row, c, cached, value, u, there, tail_value, N1, C)


@triton.jit
def keep(row, c, cached, value, u, there, tail_value, N1: tl.constexpr, C: tl.constexpr):
    """Store the N1 of the cached and of the tail that have the largest values, in order.

    There are N1 at least, as all cached are different. How the threshold is found, ``refresh``
    explains.
    """
    value = tl.minimum(tl.maximum(value, -3.4028234e38), 3.4028234e38)
    tail_value = tl.minimum(tl.maximum(tail_value, -3.4028234e38), 3.4028234e38)
    high = tl.maximum(
        tl.max(tl.where(cached, value, float("-inf")), 0),
        tl.max(tl.where(there, tail_value, float("-inf")), 0),
    )
    # The cached alone fill the row: the least that is kept is no less than the least of the cached.
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


@triton.jit
def slope_back(Q, Q_im, X, X_im, slope, FORM: tl.constexpr, NORM: tl.constexpr):
    """Return slope·∂f by the query, of rows X [T, BLOCK] with slopes [T, 1].

    The imaginary part is of use where rows are complex numbers.
    """
    by = slope * X
    by_im = by
    if FORM != 0:
        difference = Q - X
        if NORM == MODULI:
            other = Q_im - X_im
            modulus = tl.sqrt(difference * difference + other * other)
            steep = tl.where(modulus > 0, slope / tl.where(modulus > 0, modulus, 1.0), 0.0)
            by, by_im = -steep * difference, -steep * other
        elif NORM == 1:
            by = -slope * tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, 0.0))
        else:
            length = tl.sqrt(tl.sum(difference * difference, 1))[:, None]
            by = difference * tl.where(length > 0, -slope / length, 0.0)
    return by, by_im


@triton.jit
def meet_back(
    query, candidates, slopes, rows, by_query,
    COUNT: tl.constexpr, T: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FORM: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Add Σ slope·∂f by one query to by_query, T candidates at a time."""
    i = tl.program_id(0).to(tl.int64)
    PAIRS: tl.constexpr = (FORM == 1) and (NORM == MODULI)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)[None, :]
    inside = d < (HALF if PAIRS else D)
    Q = tl.load(query + i * D + d, inside, 0.0)
    Q_im = tl.load(query + i * D + HALF + d, inside, 0.0) if PAIRS else Q
    total = tl.zeros([T, BLOCK], tl.float32)
    total_im = total
    for first in range(0, COUNT, T):
        at = first + tl.arange(0, T)
        slope = tl.load(slopes + i * COUNT + at, at < COUNT, 0.0)[:, None]
        e = tl.load(candidates + i * COUNT + at, at < COUNT, 0).to(tl.int64)[:, None] * D
        X = tl.load(rows + e + d, inside, 0.0)
        X_im = tl.load(rows + e + HALF + d, inside, 0.0) if PAIRS else X
        by, by_im = slope_back(Q, Q_im, X, X_im, slope, FORM, NORM)
        total += by
        total_im += by_im
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if PAIRS else D)
    out = by_query + i * D + d
    tl.store(out, tl.load(out, inside, 0.0) + tl.sum(total, 0), inside)
    if PAIRS:
        out += HALF
        tl.store(out, tl.load(out, inside, 0.0) + tl.sum(total_im, 0), inside)


@triton.jit
def rows_back(
    query, entity, place, slopes, rows, g_rows, touched, PLACES,
    COUNT: tl.constexpr, SHARE: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FORM: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Add slope·∂f by the rows of candidates to their gradients.

    The places [2B · COUNT] of candidates are sorted by entity: a program adds up SHARE of them, and
    adds a sum to the gradient of a row where the entity changes, which takes few atomic sums.
    """
    first = tl.program_id(0) * SHARE
    last = tl.minimum(first + SHARE, PLACES)
    PAIRS: tl.constexpr = (FORM == 1) and (NORM == MODULI)
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)[None, :]
    inside = d < (HALF if PAIRS else D)
    total = tl.zeros([1, BLOCK], tl.float32)
    total_im = total
    e = tl.load(entity + first).to(tl.int64)
    for at in range(first, last):
        where = tl.load(place + at)
        slope = tl.load(slopes + where)
        i = where // COUNT * D
        Q = tl.load(query + i + d, inside, 0.0)
        if FORM == 0:
            total += slope * Q
        else:
            X = tl.load(rows + e * D + d, inside, 0.0)
            Q_im = tl.load(query + i + HALF + d, inside, 0.0) if PAIRS else Q
            X_im = tl.load(rows + e * D + HALF + d, inside, 0.0) if PAIRS else X
            by, by_im = slope_back(Q, Q_im, X, X_im, slope, FORM, NORM)
            total -= by
            total_im -= by_im
        following = tl.load(entity + at + 1, at + 1 < last, -1).to(tl.int64)
        if following != e:
            add_whole(g_rows + e * D + d, total, inside)
            total = tl.zeros([1, BLOCK], tl.float32)
            if PAIRS:
                add_whole(g_rows + e * D + HALF + d, total_im, inside)
            total_im = tl.zeros([1, BLOCK], tl.float32)
            tl.store(touched + e, 1)
        e = following


@triton.jit
def add_rows(ids, gradients, total, touched, D: tl.constexpr, BLOCK: tl.constexpr):
    """Add a row of gradients [n, D] to the gradient of the row with its id."""
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + i)
    d = tl.arange(0, BLOCK)
    g = tl.load(gradients + i * D + d, d < D, 0.0)
    most = tl.max(tl.abs(g), 0)
    live = (d < D) & (most + tl.zeros([BLOCK], tl.float32) != 0)
    add_whole(total + row * D + d, g, live)
    tl.store(touched + row, 1, most != 0)
