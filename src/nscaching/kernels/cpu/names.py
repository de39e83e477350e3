"""A hash table of names in arrays: see ``bulk_names.BulkNames``."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["EMPTY", "MOST_STEPS", "fill", "number"]

MOST_STEPS = 4096  # of one search: beyond it names were chosen to collide, and Python's dict serves
EMPTY = np.int64(-1)
LOW = np.int64(2**32 - 1)
CHUNK = 512


@njit(cache=True)
def hash_of(data, start, end):
    """Return a hash of 64 bits of data[start:end]."""
    code = np.uint64(1469598103934665603)
    for i in range(start, end):
        code = (code ^ np.uint64(data[i])) * np.uint64(1099511628211)
    # The low bits choose the slot, the high ones tell names apart: all depend on every byte.
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return code ^ (code >> np.uint64(29))


@njit(cache=True)
def fill(slots, hashes):
    """Put the names of some hashes into empty slots, numbered as they come."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        place = hashes[i] & mask
        while slots[place] != EMPTY:
            place = (place + np.uint64(1)) & mask
        slots[place] = np.int64((hashes[i] >> np.uint64(33)) << np.uint64(32)) | i


@njit(cache=True)
def find(data, begin, size, code, slots, ends, pool):
    """Return the slot of a name and its number; −1: the slot is free; −2: it takes too long."""
    mask = np.uint64(len(slots) - 1)
    mark = np.int64((code >> np.uint64(33)) << np.uint64(32))  # of 31 bits: never negative
    place = code & mask
    for _ in range(MOST_STEPS):
        slot = slots[place]
        if slot == EMPTY:
            return place, np.int64(-1)
        other = slot & LOW
        if slot & ~LOW == mark and ends[other + 1] - ends[other] == size:
            first = ends[other]
            same = True
            for i in range(size):
                if pool[first + i] != data[begin + i]:
                    same = False
                    break
            if same:
                return place, other
        place = (place + np.uint64(1)) & mask
    return place, np.int64(-2)


@njit(cache=True)
def number(data, start, end, ids, slots, hashes, ends, pool, count, used):
    """Number the names data[start:end], new ones from ``count`` on; False: names collide."""
    mask = np.uint64(len(slots) - 1)
    codes = np.empty(CHUNK, np.uint64)
    near = np.empty(CHUNK, np.int64)
    for begin in range(0, len(start), CHUNK):
        many = min(CHUNK, len(start) - begin)
        # Loads that do not wait for each other, so that memory answers them together; the search
        # then finds what it needs at hand. What they load is only kept so that it is loaded.
        for n in range(many):
            codes[n] = hash_of(data, start[begin + n], end[begin + n])
        for n in range(many):
            near[n] = slots[codes[n] & mask]
        for n in range(many):
            near[n] = ends[near[n] & LOW] if near[n] != EMPTY else 0
        for n in range(many):
            ids[begin + n] = pool[near[n]]
        for n in range(begin, begin + many):
            code, first, size = codes[n - begin], start[n], end[n] - start[n]
            place, found = find(data, first, size, code, slots, ends, pool)
            if found == -2:
                return count, used, False
            if found == -1:
                found = np.int64(count)
                slots[place] = np.int64((code >> np.uint64(33)) << np.uint64(32)) | found
                hashes[count] = code
                for i in range(size):
                    pool[used + i] = data[first + i]
                used += size
                count += 1
                ends[count] = used
            ids[n] = found
    return count, used, True
