"""Vectors times the matrices of their relations, against one matrix for each vector."""

from __future__ import annotations

import pytest
import torch

from nscaching.models.arithmetic import multiply

RELATIONS, DIM = 5, 3


def tables(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(*shape, DIM, generator=generator, dtype=torch.float64)
    return rows, torch.randn(RELATIONS, DIM * DIM, generator=generator, dtype=torch.float64)


def plain(rows, relation, table, transposed):
    matrix = table[relation].unflatten(-1, (DIM, DIM))
    return ((matrix.mT if transposed else matrix) @ rows.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("relations", [1, 2, RELATIONS])
def test_it_is_a_matrix_for_each_vector(n, relations, transposed):
    rows, table = tables(n)
    relation = torch.randint(relations, (n,), generator=torch.Generator().manual_seed(n))
    got = multiply(rows, relation, lambda ids: table[ids], RELATIONS, transposed)
    torch.testing.assert_close(got, plain(rows, relation, table, transposed))


@pytest.mark.parametrize(
    ("shape", "ids"),
    [((4, 20), (4, 1)), ((4, 1), (4, 20)), ((1, 7), (2, 1)), ((7,), ()), ((), (7,)), ((), ())],
)
def test_shapes_broadcast(shape, ids):
    rows, table = tables(*shape)
    relation = torch.arange(max(1, torch.Size(ids).numel())).reshape(ids) % RELATIONS
    got = multiply(rows, relation, lambda ids: table[ids], RELATIONS)
    expected = plain(rows, relation, table, False)
    torch.testing.assert_close(got, expected.expand_as(got))
    assert got.shape == expected.shape


def test_blocks_that_are_all_full():
    """The number of blocks is no more than promised when every relation begins one of its own."""
    relation = torch.arange(RELATIONS).repeat_interleave(17)
    rows, table = tables(len(relation))
    got = multiply(rows, relation, lambda ids: table[ids], RELATIONS)
    torch.testing.assert_close(got, plain(rows, relation, table, False))


@pytest.mark.parametrize("transposed", [False, True])
def test_gradient(transposed):
    rows, table = tables(21)
    relation = torch.tensor([3] * 17 + [0, 4, 0, 3])

    def product(rows, table):
        return multiply(rows, relation, lambda ids: table[ids], RELATIONS, transposed)

    assert torch.autograd.gradcheck(product, (rows.requires_grad_(), table.requires_grad_()))
    product(rows, table).sum().backward()
    assert table.grad.any(1).tolist() == [True, False, False, True, True]
