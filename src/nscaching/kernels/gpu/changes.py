"""Elements that are new in rows of the cache, counted on GPUs."""

import triton
import triton.language as tl


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
