"""How kernels that score candidates are launched."""

from __future__ import annotations

import math

import triton

from nscaching.models import Form

__all__ = ["CHUNK", "warps_of"]

# Numbers of the candidates' rows that a refresh holds at once; more warps or longer pieces were
# slower on an H200.
CHUNK = 16


# Numbers that a thread holds of them where rows are read more than once (of 255 registers).
HELD = 224
# Warps that a program may have; beyond, numbers go to slower memory.
MOST_WARPS = 32


def warps_of(form: Form | None, candidates: int, size: int) -> int:
    """Return how many warps score a power of two of candidates, rows of so many numbers."""
    if form is not Form.SHIFTED:
        return max(4, candidates // 64)
    threads = candidates * math.ceil(size / CHUNK) * CHUNK / HELD
    enough = max(2, candidates // 64, int(triton.next_power_of_2(math.ceil(threads / 32))))
    return min(MOST_WARPS, enough)
