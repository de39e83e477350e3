"""Elements that are new in rows of the cache, counted on GPUs."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["new_elements"]


@triton.jit
def new_elements(ids, keys, before, out, N1, C: tl.constexpr):
    """Count in one key's row [N1] the different elements that the row before lacks; take it."""
    i = tl.program_id(0).to(tl.int64)
    now = ids + tl.load(keys + i) * N1
    before += i * N1
    lane = tl.arange(0, C)
    mine = tl.load(now + lane, lane < N1, 0)
    passed = lane >= N1  # what does not count: no elements, old ones, repeats
    for place in range(N1):
        passed |= mine == tl.load(before + place)
        passed |= (mine == tl.load(now + place)) & (lane > place)
    tl.store(out + i, tl.sum((~passed).to(tl.float64), 0))
    tl.debug_barrier()  # all have read the row before
    tl.store(before + lane, mine, lane < N1)
