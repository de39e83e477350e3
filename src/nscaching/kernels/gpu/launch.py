"""Launch parameters of kernels that score candidates."""

import math
from typing import Any

import triton

from nscaching.kernels.codes import FORMS
from nscaching.models import Form, Model

# Numbers of each candidate's row that a kernel holds at once; more warps or longer pieces were
# slower on an H200.
CHUNK = 16

# Numbers that a thread holds of the rows where rows are read more than once (of 255 registers).
HELD = 224
# Most warps of a program; with more, registers spill to slower memory.
MOST_WARPS = 32


def scoring(model: Model, count: int, size: int, kind: int, has_shift: bool) -> dict[str, Any]:
    """Return the parameters for programs that score so many candidates with rows of this size."""
    many = max(2, triton.next_power_of_2(count))
    warps = max(4, many // 64)
    if model.form is Form.SHIFTED:
        threads = many * math.ceil(size / CHUNK) * CHUNK / HELD
        enough = max(2, many // 64, int(triton.next_power_of_2(math.ceil(threads / 32))))
        warps = min(MOST_WARPS, enough)
    return {
        "C": many, "D": size, "CHUNK": CHUNK, "KIND": kind, "FORM": FORMS[model.form],
        "NORM": model.metric, "UNIT": model.unit_projection, "HAS_SHIFT": has_shift,
        "num_warps": warps,
    }  # fmt: skip
