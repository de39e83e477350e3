"""A hash table of names in arrays: see ``bulk_names.BulkNames``."""

from __future__ import annotations

import numpy as np
from numba import njit

MOST_STEPS = 4096  # of one search: beyond it names were chosen to collide, and Python's dict serves
EMPTY = np.int64(-1)
LOW = np.int64(2**32 - 1)


@njit(cache=True)
def hash_of(data, start, end):
    code = np.uint64(1469598103934665603)
    for i in range(start, end):
        code = (code ^ np.uint64(data[i])) * np.uint64(1099511628211)
    # The low bits choose the slot, the high ones tell names apart: all depend on every byte.
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return code ^ (code >> np.uint64(29))


@njit(cache=True)
def fill(slots, hashes):
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        place = hashes[i] & mask
        while slots[place] != EMPTY:
            place = (place + np.uint64(1)) & mask
        slots[place] = np.int64((hashes[i] >> np.uint64(33)) << np.uint64(32)) | i


@njit(cache=True)
def number(data, start, end, ids, slots, hashes, ends, pool, count, used):
    mask = np.uint64(len(slots) - 1)
    for n in range(len(start)):
        begin, size = start[n], end[n] - start[n]
        code = hash_of(data, begin, end[n])
        mark = np.int64((code >> np.uint64(33)) << np.uint64(32))  # of 31 bits: never negative
        place, found = code & mask, np.int64(-1)
        for _ in range(MOST_STEPS):
            slot = slots[place]
            if slot == EMPTY:
                found = np.int64(count)
                slots[place] = mark | found
                hashes[count] = code
                for i in range(size):
                    pool[used + i] = data[begin + i]
                used += size
                count += 1
                ends[count] = used
                break
            if slot & ~LOW == mark:
                other = slot & LOW
                first = ends[other]
                if ends[other + 1] - first == size:
                    same = True
                    for i in range(size):
                        if pool[first + i] != data[begin + i]:
                            same = False
                            break
                    if same:
                        found = other
                        break
            place = (place + np.uint64(1)) & mask
        if found < 0:
            return count, used, False
        ids[n] = found
    return count, used, True
