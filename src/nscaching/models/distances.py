"""Distances of queries and rows, in plain torch."""

from collections.abc import Callable

import torch
from torch import Tensor

# Gathered candidate rows [queries, K, D] are scored in pieces of this size: small enough for a
# processor's cache, large enough that a GPU needs few launches.
PIECE_BYTES = {"cpu": 2 << 20, "cuda": 1 << 30}

MODULI = 0
"""A third norm beside 1 and 2: the sum of the moduli of complex numbers [real | imaginary]."""

Distances = Callable[[Tensor, Tensor, int], Tensor]
"""(query [n, D], rows [E, D], norm) → ‖q − e‖ [n, E]; the norm is 1, 2 or ``MODULI``."""


def plain_distances(query: Tensor, rows: Tensor, norm: int) -> Tensor:
    """Return ‖q − e‖ [..., n, E] of queries [..., n, D] and rows [..., E, D]."""
    if norm == MODULI:
        return _sums_of_moduli(query, rows)
    # The matrix-product shortcut for Euclidean distances loses the small ones to rounding.
    return torch.cdist(query, rows, p=float(norm), compute_mode="donot_use_mm_for_euclid_dist")


def _sums_of_moduli(query: Tensor, rows: Tensor) -> Tensor:
    """Return Σᵢ |qᵢ − eᵢ| [..., n, E] of complex numbers, as many i at once as memory allows."""
    q, e = (x.unflatten(-1, (2, -1)) for x in (query.unsqueeze(-2), rows.unsqueeze(-3)))
    total = (query[..., :1] @ rows[..., :1].mT).zero_()
    at_once = PIECE_BYTES[query.device.type] // (4 * max(1, total.numel()))
    for q_i, e_i in zip(q.split(max(1, at_once), -1), e.split(max(1, at_once), -1), strict=True):
        total = total + torch.linalg.vector_norm(q_i - e_i, dim=-2).sum(-1)
    return total
