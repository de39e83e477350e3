"""Refreshing the cache and counting what changed, compiled for GPUs: one program per key."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.random import bits, gumbel, start_of, stream_of
from nscaching.kernels.gpu.scores import scores


@triton.jit
def claim(key, owner, B, first, BLOCK: tl.constexpr):
    """Choose one owner among the positions that share a key, counted from ``first``.

    Any owner refreshes alike.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(key + i, i < B, -1)
    tl.store(owner + k, first + i, (i < B) & (k >= 0))


@triton.jit
def refresh(
    key, numbers, owner, ids, anchor, relation, seeds, tick,
    rows, anchors, relations, directions, shift, query, directions_given, weights,
    E, temperature, sign,
    N1: tl.constexpr, N2: tl.constexpr, C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    STRATEGY: tl.constexpr, SHARED: tl.constexpr,
    DISTINCT: tl.constexpr, FRESH: tl.constexpr, NOISE: tl.constexpr,
):  # fmt: skip
    """Refresh one key: gather and score its candidates, choose N1 of them, store them.

    STRATEGY is 0 importance, 1 top, 2 uniform; ``scores`` explains what candidates are scored by.
    """
    i = tl.program_id(0)
    k = tl.load(key + i)
    if k < 0:
        return
    if tl.load(owner + k) != i:
        return

    # Candidates: the cached and the fresh; repeats in a set are left out.
    lane = tl.arange(0, C)
    number = tl.load(numbers + i)
    stream = stream_of(start_of(seeds, FRESH, tick), number * 0 if SHARED else number)
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
        value = scores(
            place, valid, i, tl.load(anchor + k), tl.load(relation + k), sign,
            rows, anchors, relations, directions, shift, query, directions_given,
            C, D, CHUNK, KIND, FORM, NORM, UNIT, HAS_SHIFT,
        )  # fmt: skip
    if STRATEGY == 0:
        value = value / temperature
        if HAS_WEIGHT:
            value *= tl.load(weights + i)
    if STRATEGY != 1:
        value += gumbel(bits(stream_of(start_of(seeds, NOISE, tick), number), index))

    # The N1 largest: above a threshold all, level with it until the row is full. Halving the
    # interval until N1 are at or above its middle takes a dozen counts, less than a sort.
    # The largest number stands for infinite scores: unlike infinity, it can be halved.
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


@triton.jit
def new_elements(ids, keys, before, out, N1, C: tl.constexpr):
    """Count the distinct elements of a key's row [N1] that ``before`` lacks; update ``before``."""
    i = tl.program_id(0).to(tl.int64)
    now = ids + tl.load(keys + i) * N1
    before += i * N1
    lane = tl.arange(0, C)
    mine = tl.load(now + lane, lane < N1, 0)
    passed = lane >= N1  # not counted: lanes beyond the row, old elements, repeats
    for place in range(N1):
        passed |= mine == tl.load(before + place)
        passed |= (mine == tl.load(now + place)) & (lane > place)
    tl.store(out + i, tl.sum((~passed).to(tl.float64), 0))
    tl.debug_barrier()  # all lanes have read ``before``
    tl.store(before + lane, mine, lane < N1)
