"""The refresh of the cache compiled for CPUs: one pass per key, nothing kept but the result."""

import numpy as np
from numba import njit

from nscaching.kernels.codes import SHIFTED, TOP, UNIFORM
from nscaching.kernels.cpu.meeting import score, score_shifted
from nscaching.kernels.cpu.random import COMPILE, INLINE, bits, gumbel, stream_of
from nscaching.kernels.cpu.vectors import least_of, most_of

# Stands for infinite scores: unlike infinity, it can be halved.
LARGEST = np.float32(3.4028234e38)

# Halvings after which the threshold of a choice is as exact as float32 can be.
HALVINGS = 300


@njit(**INLINE)
def threshold(values, count, wanted):
    """Return the largest x found with ``wanted`` or more of values[:count] at or above it.

    By halving the interval: one pass over a hundred numbers takes a dozen instructions.
    """
    low, high = least_of(values[:count]), most_of(values[:count])
    middle = high  # many values may equal the largest
    for _ in range(HALVINGS):
        above = 0
        for i in range(count):
            above += values[i] >= middle
        if above == wanted:
            return middle
        if above > wanted:
            low = middle
        else:
            high = middle
        middle = np.float32(0.5) * low + np.float32(0.5) * high  # the difference may overflow
        if not (low < middle < high):
            break
    return low


@njit(**INLINE)
def collect(cached, fresh, entities, distinct, mark, seen, ids):
    """Put the entities of a row and new ones into ``ids`` [N1 + N2]; return how many there are.

    ``mark`` marks in ``seen`` [|E|] those of a set, which stand in it once.
    """
    n1, count = cached.size, 0
    for slot in range(ids.size):
        if slot < n1:
            entity = cached[slot]
        else:
            entity = np.int32((np.uint64(bits(fresh, slot)) * entities) >> np.uint64(32))
        if distinct:
            if seen[entity] == mark:
                continue
            seen[entity] = mark
        ids[count] = entity
        count += 1
    return count


@njit(**INLINE)
def choose(cached, ids, values, count, strategy, scale, noise, distinct, index):
    """Choose the entities of a row among ``count`` candidates, by their scores ``values``.

    ``index`` [N1 + N2] is room for the numbers of the candidates' noise.
    """
    if strategy != TOP:
        for c in range(count):
            index[c] = ids[c] if distinct else c
        if strategy == UNIFORM:
            for c in range(count):
                values[c] = gumbel(bits(noise, index[c]))
        else:
            for c in range(count):
                values[c] = values[c] * scale + gumbel(bits(noise, index[c]))
    for c in range(count):
        values[c] = min(max(values[c], -LARGEST), LARGEST)
    if count > cached.size:
        keep(cached, ids, values, count, threshold(values, count, cached.size))
    else:  # fewer than wanted: taken again in turn
        for slot in range(cached.size):
            cached[slot] = ids[slot % count]
    if distinct:
        sort(cached)


@njit(**COMPILE)
def refresh(
    begin, end, cache, key, number, query, rows, form, norm, shift, direction, unit,
    n2, fresh_start, noise_start, shared, strategy, scale, distinct, mark, seen,
):  # fmt: skip
    """Refresh the keys [begin:end], all different, with random numbers by ``number``.

    The scores of the i-th key are multiplied by scale[i] before noise is added. Candidates of the
    i-th key are marked by ``mark`` + i in ``seen`` [|E|]; no mark is used twice.
    """
    size = cache.shape[1] + n2
    ids, values = np.empty(size, np.int32), np.empty(size, np.float32)
    index = np.empty(size, np.uint32)
    entities = np.uint64(rows.shape[0])
    for i in range(begin, end):
        cached = cache[key[i]]
        fresh = stream_of(fresh_start, np.int64(0) if shared else number[i])
        count = collect(cached, fresh, entities, distinct, mark + i, seen, ids)
        if strategy != UNIFORM:
            q, some = query[i], ids[:count]
            if form == SHIFTED:
                score_shifted(norm, q, rows, shift, direction[i], unit, some, values)
            else:
                score(form, norm, q, rows, some, values)
        noise = stream_of(noise_start, number[i])
        choose(cached, ids, values, count, strategy, scale[i], noise, distinct, index)


# The same in two parts, between which the scores come from elsewhere.


@njit(**COMPILE)
def candidates(
    begin, end, cache, key, number, fresh_start, shared, entities, distinct, ids, counts, mark, seen
):
    """Put the candidates of the keys [begin:end] into the first counts[i] of ids [n, N1 + N2]."""
    for i in range(begin, end):
        fresh = stream_of(fresh_start, np.int64(0) if shared else number[i])
        counts[i] = collect(
            cache[key[i]], fresh, np.uint64(entities), distinct, mark + i, seen, ids[i]
        )


@njit(**COMPILE)
def choices(
    begin, end, cache, key, number, noise_start, strategy, scale, distinct, ids, values, counts
):
    """Choose among the candidates of the keys [begin:end], by their scores ``values``."""
    index = np.empty(ids.shape[1], np.uint32)
    for i in range(begin, end):
        noise = stream_of(noise_start, number[i])
        how = strategy, scale[i], noise, distinct, index
        choose(cache[key[i]], ids[i], values[i], counts[i], *how)


@njit(**INLINE)
def keep(kept, ids, values, count, least):
    """Keep the ids whose values are above the threshold, then ids level with it, until full."""
    above = 0
    for c in range(count):
        above += values[c] > least
    level = kept.size - above
    place = 0
    for c in range(count):
        if place < kept.size and (values[c] > least or (values[c] == least and level > 0)):
            level -= values[c] == least
            kept[place] = ids[c]
            place += 1
    while place < kept.size:  # values are NaN: the training diverged
        kept[place] = ids[place]
        place += 1


@njit(**INLINE)
def sort(row):
    """Sort by insertion: ids that stayed in the cache are in order already."""
    for i in range(1, row.size):
        value, j = row[i], i
        while j > 0 and row[j - 1] > value:
            row[j] = row[j - 1]
            j -= 1
        row[j] = value
