"""Arithmetic of scores in plain torch: complex numbers, distances, products with matrices."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nscaching.errors import DIVERGED, UserError

# Gathered candidate rows [queries, K, D] are scored in pieces of this size: small enough for a
# processor's cache, large enough that a GPU needs few launches.
PIECE_BYTES = {"cpu": 2 << 20, "cuda": 1 << 30}

# Tables with more numbers are read in pieces of this many where all entities are scored: a score
# takes copies of the rows.
MOST_ROWS = 1 << 27

PIECE = 1 << 24  # random numbers that are drawn in memory for a GPU at once

# Vectors that share one copy of a matrix, at least and at most: fewer would spend the time on
# copies, more on padding where relations have few vectors.
LEAST, MOST = 16, 64

MODULI = 0
"""A third norm beside 1 and 2: the sum of the moduli of complex numbers [real | imaginary]."""

Distances = Callable[[Tensor, Tensor, int], Tensor]
"""(query [n, D], rows [E, D], norm) → ‖q − e‖ [n, E]; the norm is 1, 2 or ``MODULI``."""


def times(a_re: Tensor, a_im: Tensor, b_re: Tensor, b_im: Tensor) -> tuple[Tensor, Tensor]:
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


def moduli(rows: Tensor) -> Tensor:
    """Return the moduli [..., d] of rows [real | imaginary] of 2d; they have a gradient at zero."""
    found: Tensor = torch.linalg.vector_norm(rows.unflatten(-1, (2, -1)), dim=-2)
    return found


def start_uniformly(table: Tensor, generator: torch.Generator | None) -> None:
    """Fill a table [n, D] by Xavier's uniform distribution, the same on any device.

    A generator on the CPU serves a table on a GPU piece by piece: no whole table is in memory.
    """
    if generator is None or generator.device == table.device:
        nn.init.xavier_uniform_(table, generator=generator)
    else:
        start_in_pieces(table, generator)


@torch.no_grad()
def start_in_pieces(table: Tensor, generator: torch.Generator) -> None:
    """Twin of ``xavier_uniform_`` for a table on another device than the generator's."""
    bound = math.sqrt(3.0) * math.sqrt(2.0 / float(sum(table.shape)))
    for piece in table.view(-1).split(PIECE):
        drawn = torch.empty(len(piece), device=generator.device)
        piece.copy_(drawn.uniform_(-bound, bound, generator=generator))


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
    at_once = max(1, PIECE_BYTES[query.device.type] // (4 * max(1, total.numel())))
    for q_i, e_i in zip(q.split(at_once, -1), e.split(at_once, -1), strict=True):
        total = total + torch.linalg.vector_norm(q_i - e_i, dim=-2).sum(-1)
    return total


def multiply(
    rows: Tensor,
    relation: Tensor,
    matrices: Callable[[Tensor], Tensor],
    relations: int,
    transposed: bool = False,
) -> Tensor:
    """Return M_r x of vectors x [..., d] and relations r [...], or M_rᵀ x; the shapes broadcast.

    ``matrices`` gives the numbers [n, d·d] of some of the relations, M_r row by row.
    """
    d = rows.shape[-1]
    if not relation.dim():
        matrix = matrices(relation).view(d, d)
        return rows @ (matrix if transposed else matrix.mT)
    shape = torch.broadcast_shapes(rows.shape[:-1], relation.shape)
    rows, relation = rows.expand(*shape, d).reshape(-1, d), relation.expand(shape).reshape(-1)
    # Sizes depend on shapes alone, so that a CUDA graph can replay the operations.
    size = min(MOST, max(LEAST, len(rows) // relations))
    blocks = len(rows) // size + min(len(rows), relations)
    place, owner = _places(relation, blocks, size)
    padded = rows.new_zeros(blocks * size, d).index_copy(0, place, rows)
    matrix = matrices(owner).view(blocks, d, d)
    product = torch.bmm(padded.view(blocks, size, d), matrix if transposed else matrix.mT)
    return product.view(-1, d)[place].view(*shape, d)


def _places(relation: Tensor, blocks: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the place [n] of each row in blocks of one relation each, and that relation."""
    ordered, order = relation.sort(stable=True)
    position = torch.arange(len(relation), device=relation.device)
    within = position - torch.searchsorted(ordered, ordered)  # its number in its relation
    block = (within % size == 0).cumsum(0) - 1
    place = torch.empty_like(order)
    place[order] = block * size + within % size
    owner = relation.new_zeros(blocks)
    owner[block] = ordered
    return place, owner


def finite(scores: Tensor) -> Tensor:
    """Return the scores; raise a UserError if the model has diverged."""
    if not torch.isfinite(scores).all():
        raise UserError(DIVERGED)
    return scores
