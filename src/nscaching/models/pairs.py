"""Complex numbers as pairs of real ones."""

import torch
from torch import Tensor


def times(a_re: Tensor, a_im: Tensor, b_re: Tensor, b_im: Tensor) -> tuple[Tensor, Tensor]:
    """Return real and imaginary part of a·b."""
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


def moduli(rows: Tensor) -> Tensor:
    """Return the moduli [..., d] of rows [real | imaginary] of 2d; they have a gradient at zero."""
    found: Tensor = torch.linalg.vector_norm(rows.unflatten(-1, (2, -1)), dim=-2)
    return found
