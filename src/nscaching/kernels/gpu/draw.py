"""Taking a batch and drawing its negatives, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.random import (
    bits,
    gumbel,
    rotated,
    start_at,
    start_of,
    stream_of,
    uniform,
)
from nscaching.kernels.gpu.scores import scores


@triton.jit
def take(
    columns, seeds, taken, out, n, width, B,
    COLUMNS: tl.constexpr, PURPOSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Put row numbers and columns [COLUMNS, n] at the next places of the order into out."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    so_far = tl.load(taken)
    start = start_at(seeds, PURPOSE, so_far // n)
    place = tl.minimum((so_far % n).to(tl.int32) + i, n - 1)
    row = rotated(start, place, n, width, BLOCK).to(tl.int64)
    tl.store(out + i, row, i < B)
    for k in tl.static_range(COLUMNS):
        value = tl.load(columns + k * tl.full([], 1, tl.int64) * n + row, i < B, 0)
        tl.store(out + (1 + k) * B + i, value.to(tl.int64), i < B)


@triton.jit
def sample(seeds, number, out, below, width, count, PURPOSE: tl.constexpr, BLOCK: tl.constexpr):
    """Put the first places of a random order of 0 … below − 1, by a sample's number, into out."""
    i = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = start_at(seeds, PURPOSE, tl.load(number + i))
    found = rotated(start, tl.minimum(place, below - 1), below, width, BLOCK)
    tl.store(out + i * count + place, found.to(tl.int64), place < count)


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
def draw_by_score(
    head, relation, tail, replace_head, head_key, tail_key, head_cache, tail_cache, seeds, tick,
    rows, relations, directions, shift, entity,
    N1: tl.constexpr, C: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr, FORM: tl.constexpr, NORM: tl.constexpr,
    UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr, STRATEGY: tl.constexpr, SLOT: tl.constexpr,
):  # fmt: skip
    """Draw an entity for one triple from the cache of its key; STRATEGY 0 importance, 1 top."""
    i = tl.program_id(0)
    replace = tl.load(replace_head + i)
    lane = tl.arange(0, C)
    valid = lane < N1
    of_head = tl.load(head_cache + tl.load(head_key + i) * N1 + lane, valid, 0)
    of_tail = tl.load(tail_cache + tl.load(tail_key + i) * N1 + lane, valid, 0)
    candidate = tl.where(replace, of_head, of_tail)
    anchor = tl.where(replace, tl.load(tail + i), tl.load(head + i))
    value = scores(
        candidate.to(tl.int64), valid, i, anchor, tl.load(relation + i),
        tl.where(replace, -1.0, 1.0),
        rows, rows, relations, directions, shift, rows, rows,
        C, D, CHUNK, KIND, FORM, NORM, UNIT, HAS_SHIFT,
    )  # fmt: skip
    if STRATEGY == 0:
        value += gumbel(bits(stream_of(start_of(seeds, SLOT, tick), i), lane))
    value = tl.where(valid, tl.maximum(value, -3.4028234e38), float("-inf"))
    best = tl.argmax(value, 0)
    tl.store(entity + i, tl.sum(tl.where(lane == best, candidate, 0), 0).to(tl.int64))


@triton.jit
def take_rows(rows, row, out, N1, C: tl.constexpr):
    """Copy a row of a cache, which may be in host memory."""
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    ids = tl.load(rows + tl.load(row + i) * N1 + lane, lane < N1, 0)
    tl.store(out + i * N1 + lane, ids, lane < N1)


@triton.jit
def put_rows(rows, row, copies, last, N1, C: tl.constexpr):
    """Write a copy to its row of a cache, if it is the last copy of this row."""
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, C)
    mine = (lane < N1) & (tl.load(last + i) == i)
    ids = tl.load(copies + i * N1 + lane, mine, 0)
    tl.store(rows + tl.load(row + i) * N1 + lane, ids, mine)
