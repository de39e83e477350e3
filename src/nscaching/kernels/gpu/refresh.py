"""Drawing from the cache and refreshing it, compiled for GPUs: one program per key."""

from __future__ import annotations

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import (
    COMPLEX,
    GIVEN,
    TRANSD,
    TRANSE,
    TRANSH,
    project_prelude,
)
from nscaching.kernels.gpu.random import bits, gumbel, start_of, stream_of, uniform
from nscaching.kernels.gpu.rank import MODULI

__all__ = ["claim", "draw", "gather", "refresh"]


@triton.jit
def gather(columns, row, out, n, B, BLOCK: tl.constexpr):
    """Put the columns [k, n] at some rows into out [k, B]."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(1).to(tl.int64)
    at = tl.load(row + i, i < B, 0)
    tl.store(out + k * B + i, tl.load(columns + k * n + at, i < B, 0), i < B)


@triton.jit
def draw(
    head, relation, tail, chance, head_key, tail_key, head_cache, tail_cache,
    seeds, tick, false_head, false_tail, replace_head,
    B, E, N1: tl.constexpr, CACHED: tl.constexpr,
    COIN: tl.constexpr, ENTITY: tl.constexpr, SLOT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw a negative for each triple: from the cache of its key, or any entity."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < B
    h = tl.load(head + i, inside)
    r = tl.load(relation + i, inside)
    t = tl.load(tail + i, inside)
    zero = i * 0
    coin = uniform(bits(stream_of(start_of(seeds, COIN, tick), i), zero))
    replace = coin < tl.load(chance + r, inside)
    if CACHED:
        slot_bits = bits(stream_of(start_of(seeds, SLOT, tick), i), zero)
        slot = tl.umulhi(slot_bits, tl.full([BLOCK], N1, tl.uint32)).to(tl.int64)
        of_head = head_cache + tl.load(head_key + i, inside, 0) * N1 + slot
        of_tail = tail_cache + tl.load(tail_key + i, inside, 0) * N1 + slot
        of_head = tl.load(of_head, inside & replace, 0)
        of_tail = tl.load(of_tail, inside & ~replace, 0)
        entity = tl.where(replace, of_head, of_tail).to(tl.int64)
    else:
        entity_bits = bits(stream_of(start_of(seeds, ENTITY, tick), i), zero)
        entity = tl.umulhi(entity_bits, tl.full([BLOCK], E, tl.uint32)).to(tl.int64)
    tl.store(false_head + i, tl.where(replace, entity, h), inside)
    tl.store(false_tail + i, tl.where(replace, t, entity), inside)
    tl.store(replace_head + i, replace, inside)


@triton.jit
def claim(key, owner, B, BLOCK: tl.constexpr):
    """Let one of the positions that share a key own it: whichever, the refresh is the same."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(key + i, i < B, -1)
    tl.store(owner + k, i, (i < B) & (k >= 0))


@triton.jit
def refresh(
    key, owner, ids, anchor, relation, seeds, tick,
    rows, anchors, relations, directions, shift, query, directions_given, weights,
    E, temperature, sign,
    N1: tl.constexpr, N2: tl.constexpr, C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    STRATEGY: tl.constexpr, SHARED: tl.constexpr,
    DISTINCT: tl.constexpr, FRESH: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    """Refresh one key: gather and score its candidates, choose N1 of them, store them.

    FORM is 0 dot, 1 distance, 2 shifted distance; STRATEGY 0 importance, 1 top, 2 uniform.
    rows [E, D] are those of candidates, which may be rounded, anchors [E, D] those of queries.
    The sign of the relation is +1 for tails and −1 for heads.
    """
    i = tl.program_id(0)
    k = tl.load(key + i)
    if k < 0:
        return
    if tl.load(owner + k) != i:
        return

    # Candidates: the cached and the fresh; repeats in a set are left out.
    lane = tl.arange(0, C)
    stream = stream_of(start_of(seeds, FRESH, tick), k * 0 if SHARED else k)
    fresh = tl.umulhi(bits(stream, lane), tl.full([C], E, tl.uint32))
    cached = tl.load(ids + k * N1 + lane, lane < N1, 0)
    candidate = tl.where(lane < N1, cached, fresh.to(tl.int32))
    valid = lane < N1 + N2
    index = lane
    if DISTINCT:
        candidate = tl.sort(tl.where(valid, candidate, 2147483647))
        before = tl.gather(candidate, tl.maximum(lane - 1, 0), 0)
        valid = (candidate != 2147483647) & ((candidate != before) | (lane == 0))
        index = candidate
    place = tl.where(valid, candidate, 0).to(tl.int64)

    value = tl.zeros([C], tl.float32)
    if STRATEGY != 2:
        # The query of the key, by chunks of its numbers.
        a = anchors + tl.load(anchor + k) * D
        r_id = tl.load(relation + k)
        r = relations + r_id * D
        if KIND == GIVEN:
            v = directions_given + i * D
        else:
            v = directions + r_id * D
        a_shift = 0.0
        if KIND == TRANSD:
            a_shift = tl.load(shift + tl.load(anchor + k))
        s, scale = project_prelude(a, a_shift, v, D, CHUNK, KIND)
        e = rows + place * D
        if FORM == 2:
            # The shift of each candidate, and the length of what is shifted.
            s_e = tl.zeros([C], tl.float32)
            if HAS_SHIFT:
                s_e = tl.load(shift + place, valid, 0.0)
            else:
                for d0 in tl.static_range(0, D, CHUNK):
                    d = d0 + tl.arange(0, CHUNK)
                    v_d = tl.load(v + d, d < D, 0.0)
                    inside = valid[:, None] & (d < D)[None, :]
                    e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
                    s_e -= tl.sum(v_d[None, :] * e_d, 1)
            scale_e = tl.full([C], 1.0, tl.float32)
            if UNIT:
                square = tl.zeros([C], tl.float32)
                for d0 in tl.static_range(0, D, CHUNK):
                    d = d0 + tl.arange(0, CHUNK)
                    v_d = tl.load(v + d, d < D, 0.0)
                    inside = valid[:, None] & (d < D)[None, :]
                    e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
                    e_d += s_e[:, None] * v_d[None, :]
                    square += tl.sum(e_d * e_d, 1)
                scale_e = 1.0 / tl.maximum(tl.sqrt(square), 1e-12)
        HALF: tl.constexpr = D // 2
        PAIRS: tl.constexpr = (KIND == COMPLEX) or ((FORM == 1) and (NORM == MODULI))
        END: tl.constexpr = HALF if PAIRS else D
        for d0 in tl.static_range(0, END, CHUNK):
            d = d0 + tl.arange(0, CHUNK)
            inner = d < END
            inside = valid[:, None] & inner[None, :]
            e_d = tl.load(e[:, None] + d[None, :], inside, 0.0).to(tl.float32)
            if KIND == GIVEN:
                q_d = tl.load(query + i * D + d, inner, 0.0)
            else:
                a_d = tl.load(a + d, inner, 0.0)
                r_d = tl.load(r + d, inner, 0.0)
                if KIND == COMPLEX:
                    a_im = tl.load(a + HALF + d, inner, 0.0)
                    r_im = sign * tl.load(r + HALF + d, inner, 0.0)
                    e_im = tl.load(e[:, None] + HALF + d[None, :], inside, 0.0).to(tl.float32)
                    q_im = a_d * r_im + a_im * r_d
                    value += tl.sum(e_im * q_im[None, :], 1)
                    q_d = a_d * r_d - a_im * r_im
                elif KIND == TRANSE:
                    q_d = a_d + sign * r_d
                elif (KIND == TRANSH) or (KIND == TRANSD):
                    q_d = scale * (a_d + s * tl.load(v + d, inner, 0.0))
                    q_d += sign * r_d
                else:
                    q_d = a_d * r_d
            if FORM == 0:
                value += tl.sum(e_d * q_d[None, :], 1)
            else:
                if FORM == 2:
                    v_d = tl.load(v + d, inner, 0.0)
                    e_d = scale_e[:, None] * (e_d + s_e[:, None] * v_d[None, :])
                difference = tl.where(inner[None, :], q_d[None, :] - e_d, 0.0)
                if NORM == MODULI:
                    q_im = tl.load(query + i * D + HALF + d, inner, 0.0)
                    e_im = tl.load(e[:, None] + HALF + d[None, :], inside, 0.0).to(tl.float32)
                    other = tl.where(inner[None, :], q_im[None, :] - e_im, 0.0)
                    value -= tl.sum(tl.sqrt(difference * difference + other * other), 1)
                elif NORM == 1:
                    value -= tl.sum(tl.abs(difference), 1)
                else:
                    value += tl.sum(difference * difference, 1)
        if (FORM != 0) and (NORM == 2):
            value = -tl.sqrt(value)
    if STRATEGY == 0:
        value = value / temperature
        if HAS_WEIGHT:
            value *= tl.load(weights + i)
    if STRATEGY != 1:
        value += gumbel(bits(stream_of(start_of(seeds, NOISE, tick), k), index))

    # The N1 largest: above a threshold all, level with it until the row is full. Halving the
    # interval until N1 are at or above its middle takes a dozen counts, less than a sort.
    # Infinite scores are taken for the largest numbers, which compare and can be halved.
    value = tl.minimum(tl.maximum(value, -3.4028234e38), 3.4028234e38)
    value = tl.where(valid, value, float("-inf"))
    low = tl.min(tl.where(valid, value, float("inf")), 0)
    high = tl.max(value, 0)
    middle = high
    left = tl.sum(valid.to(tl.int32), 0)
    going = left > N1
    while going:
        count = tl.sum((value >= middle).to(tl.int32), 0)
        low = tl.where(count >= N1, middle, low)
        high = tl.where(count >= N1, high, middle)
        middle = 0.5 * low + 0.5 * high  # the difference may overflow
        going = (count != N1) & (low < middle) & (middle < high)
    least = low
    above = valid & (value > least)
    level = valid & (value == least)
    room = N1 - tl.sum(above.to(tl.int32), 0)
    kept = above | (level & (tl.cumsum(level.to(tl.int32), 0) <= room))
    slot = tl.cumsum(kept.to(tl.int32), 0) - 1
    kept = kept & (slot < N1)
    tl.store(ids + k * N1 + slot, candidate, kept)
    filled = left
    while filled < N1:  # fewer than wanted: taken again in turn
        tl.store(ids + k * N1 + slot + filled, candidate, kept & (slot + filled < N1))
        filled += left
