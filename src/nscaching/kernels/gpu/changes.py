"""Elements that are new in rows of the cache, counted on GPUs."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["new_elements"]


@triton.jit
def new_elements(before, now, out, N1, C: tl.constexpr):
    """Count in one row [N1] the different elements that the row before lacks."""
    i = tl.program_id(0).to(tl.int64)
    before += i * N1
    now += i * N1
    lane = tl.arange(0, C)
    mine = tl.load(now + lane, lane < N1, 0)
    counted = lane >= N1  # what is not to count: no elements, old ones, repeats
    for place in range(N1):
        counted |= mine == tl.load(before + place)
        counted |= (mine == tl.load(now + place)) & (lane > place)
    tl.store(out + i, tl.sum((~counted).to(tl.int64), 0))
