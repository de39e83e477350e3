"""Sorting on whatever device the numbers are."""

import numpy as np
import torch
from torch import Tensor


def ordered(numbers: Tensor) -> Tensor:
    """Return the numbers in ascending order along the last dimension."""
    if numbers.is_cuda:
        return numbers.sort(-1).values
    return torch.from_numpy(np.sort(numbers.numpy(), axis=-1))  # many times faster than torch's
