"""Products of vectors with the matrices of their relations; vectors share copies of a matrix."""

from collections.abc import Callable

import torch
from torch import Tensor

# Vectors that share one copy of a matrix, at least and at most: fewer would spend the time on
# copies, more on padding where relations have few vectors.
LEAST, MOST = 16, 64


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
