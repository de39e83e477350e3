"""Negatives drawn from all entities, or one of each row of a cache, compiled for CPUs."""

import numpy as np
from numba import njit

from nscaching.kernels.cpu.random import COMPILE, HALF, UNIT, bits, stream_of


@njit(**COMPILE)
def draw(
    begin, end, chance, coin_start, start, entities, caches, keys, head, relation, tail,
    replace_head, new_head, new_tail,
):  # fmt: skip
    """Draw for the triples [begin:end]: which ends are replaced [B], heads and tails [B, K].

    From the rows keys [B] of the two caches where these are not empty; then K is 1.
    """
    n1 = np.uint64(caches[0].shape[1])
    for i in range(begin, end):
        coin = bits(stream_of(coin_start, i), 0)
        u = (np.float32(np.int32(coin >> np.uint32(9))) + HALF) * UNIT
        is_head = np.float64(u) < chance[relation[i]]
        replace_head[i], stream = is_head, stream_of(start, i)
        for k in range(new_head.shape[1]):
            wide = np.uint64(bits(stream, k)) * (n1 if n1 else np.uint64(entities))
            entity = np.int64(wide >> np.uint64(32))
            if n1 and is_head:
                entity = np.int64(caches[0][keys[0][i], entity])
            elif n1:
                entity = np.int64(caches[1][keys[1][i], entity])
            new_head[i, k] = entity if is_head else head[i]
            new_tail[i, k] = tail[i] if is_head else entity
