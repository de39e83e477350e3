"""Gathering a batch and drawing its negatives, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching.kernels.gpu.random import bits, gumbel, start_of, stream_of, uniform
from nscaching.kernels.gpu.scores import scores


@triton.jit
def gather(columns, row, out, n, B, BLOCK: tl.constexpr):
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
