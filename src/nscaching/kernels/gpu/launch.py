"""Launch parameters of kernels that score candidates."""

import math

import triton

from nscaching.models import Form

# Numbers of each candidate's row that a kernel holds at once; more warps or longer pieces were
# slower on an H200.
CHUNK = 16

# Numbers that a thread holds of the rows where rows are read more than once (of 255 registers).
HELD = 224
# Most warps of a program; with more, registers spill to slower memory.
MOST_WARPS = 32


def warps_of(form: Form | None, candidates: int, size: int) -> int:
    """Return the number of warps for a power of two of candidates with rows of this size."""
    if form is not Form.SHIFTED:
        return max(4, candidates // 64)
    threads = candidates * math.ceil(size / CHUNK) * CHUNK / HELD
    enough = max(2, candidates // 64, int(triton.next_power_of_2(math.ceil(threads / 32))))
    return min(MOST_WARPS, enough)
