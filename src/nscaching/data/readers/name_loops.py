"""A hash table of names in arrays, compiled: see ``name_table.BulkNames``."""

import numpy as np
from numba import njit

EMPTY = np.int64(-1)
LOW = np.int64(2**32 - 1)
CHUNK = 512


@njit(cache=True)
def hash_of(data, start, end, seed):
    code = seed
    for i in range(start, end):
        code = (code ^ np.uint64(data[i])) * np.uint64(1099511628211)
        code ^= code >> np.uint64(32)  # else bytes could cancel out whatever the seed's high bits
    # The low bits choose the slot, the high ones tell names apart: all depend on every byte.
    code = (code ^ (code >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    code = (code ^ (code >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return code ^ (code >> np.uint64(33))


@njit(cache=True)
def is_same(data, start, size, pool, begin, end):
    if end - begin != size:
        return False
    for i in range(size):
        if pool[begin + i] != data[start + i]:
            return False
    return True


@njit(cache=True)
def number(data, start, end, seed, slots, ends, pool, count):
    """Return the count of names, and the number of each name data[start:end], new from ``count``.

    A slot holds the upper 31 bits of a hash and the number of its name; name i is
    pool[ends[i]:ends[i + 1]].
    """
    mask = np.uint64(len(slots) - 1)
    ids = np.empty(len(start), np.int32)
    codes = np.empty(CHUNK, np.uint64)
    near = np.empty(CHUNK, np.int64)
    for begin in range(0, len(start), CHUNK):
        last = min(begin + CHUNK, len(start))
        for n in range(begin, last):
            codes[n - begin] = hash_of(data, start[n], end[n], seed)
        # Loads that do not wait for each other: the search then finds its slots in the CPU's cache.
        for n in range(begin, last):
            near[n - begin] = slots[codes[n - begin] & mask]
        for n in range(last - begin):
            near[n] = ends[near[n] & LOW] if near[n] != EMPTY else 0
        for n in range(last - begin):
            near[n] = pool[near[n]]
        for n in range(begin, last):
            code, size = codes[n - begin], end[n] - start[n]
            mark = np.int64(code >> np.uint64(33)) << 32
            place = code & mask
            slot = slots[place]
            while slot != EMPTY:
                known = slot & LOW
                if slot - known == mark and is_same(
                    data, start[n], size, pool, ends[known], ends[known + 1]
                ):
                    break
                place = (place + np.uint64(1)) & mask
                slot = slots[place]
            if slot == EMPTY:
                slot = mark | np.int64(count)
                slots[place] = slot
                pool[ends[count] : ends[count] + size] = data[start[n] : end[n]]
                ends[count + 1] = ends[count] + size
                count += 1
            ids[n] = slot & LOW
    return count, ids
