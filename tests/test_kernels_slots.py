"""Compact gradients on GPUs, and the optimizer with one number for a row."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch

from helpers import (
    SLOW,
    fast_twins,
    learner_of,
    new_kernels,
    new_model,
    paths,
    plain_batch,
    random_steps,
)
from nscaching.kernels import Learning
from nscaching.kernels.batch import Negatives
from nscaching.kernels.optimizers import ADAGRAD_EPSILON
from test_kernels_softmax import Run, batches, model_of
from test_kernels_step import new_sums, parameters

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
SPARSE = "nscaching.kernels.compiled.SPARSE"
WAYS = {  # models, and what is learnt: of one negative, of several, with the penalty of cubes
    "TransE": {"rows": True},
    "TransH": {"rows": True, "adagrad": True, "weight_decay": 0.003},
    "TransD": {"adagrad": True},
    "DistMult": {"rows": True, "cubes": 0.1},
    "ComplEx": {"rows": True, "adagrad": True, "cubes": 0.1},
}


def learning_of(objective="logistic", **options):
    usual = {"margin": 2.0, "lr": 0.05, "weight_decay": 0.0}
    return Learning(objective, **usual | options)


def with_more(steps, count, entities):
    """Give every triple of some steps ``count`` more negatives on the same side."""
    for batch, negatives in steps:
        given = torch.Generator().manual_seed(len(batch))
        replaced = negatives.head[:, 0] != batch.head
        more = torch.randint(entities, (len(batch), count), generator=given)
        many = batch.corrupt(replaced, more, more)
        head = torch.cat([negatives.head, many.head], 1)
        yield batch, Negatives(head, torch.cat([negatives.tail, many.tail], 1), replaced)


def state_of(learner, model, sums):
    own = learner_of(learner)
    moments = [part.cpu() for parts in (own.means, own.squares) for part in parts.values()]
    return [*parameters(model).values(), *moments, sums]


def clean(learner):
    own = learner_of(learner)
    kept = [own.slots, *own.owners.values(), *own.gradients.values(), own.g_shift, own.squares_sum]
    return not any(part.any() for part in kept)


@needs_triton
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("more", [0, 2])
def test_compact_gradients_give_the_same_bits(name, more, monkeypatch):
    found, sizes = [], [7, 3, 7] if "triton" in SLOW else [3000, 1000, 3000]
    for sparse in (0, 10**9):
        monkeypatch.setattr(SPARSE, sparse)
        model = new_model(name, 40, 3, 9, seed=1)
        learner = new_kernels("triton").learner(model, learning_of(**WAYS[name]))
        steps, sums = random_steps(model, sizes, untouched=5), new_sums()
        for step in with_more(steps, more, 35) if more else steps:
            learner.step(*step, sums)
            assert clean(learner)
        assert learner_of(learner).compact == (sparse == 0)
        found.append(state_of(learner, model, sums))
    for compact, dense in zip(*found, strict=True):
        assert torch.equal(compact, dense)
    assert sums[2] > 0


@needs_triton
@pytest.mark.parametrize(("name", "norm"), [("ComplEx", 1), ("RotatE", 2)])
def test_compact_gradients_of_the_softmax(name, norm, monkeypatch):
    found = []
    for sparse in (0, 10**9):
        monkeypatch.setattr(SPARSE, sparse)
        options = {"rows": True, "adagrad": True, "objective": "softmax"}
        if name == "ComplEx":
            options |= {"cubes": 0.05, "relation_weight": 0.5, "adagrad_start": 0.01}
        run = Run("triton", model_of(name, norm), learning_of(**options), near=2)
        sums = sum(run.step(rows) for rows in batches(3, [4, 6]))
        assert learner_of(run.learner).compact == (sparse == 0)
        assert clean(run.learner)
        found.append([*run.state(), sums])
    for compact, dense in zip(*found, strict=True):
        assert torch.equal(compact, dense)


@needs_triton
def test_the_order_of_a_batch_decides_slots_and_nothing_else(monkeypatch):
    monkeypatch.setattr(SPARSE, 0)
    found = []
    for order in (slice(None), torch.arange(10).flip(0)):
        model = new_model("TransE", 30, 3, 9, seed=1)
        learner = new_kernels("triton").learner(model, learning_of(rows=True, adagrad=True))
        sums = new_sums()
        for batch, negatives in random_steps(model, [10, 10]):
            head, tail = negatives.head[order], negatives.tail[order]
            triple = (ids[order] for ids in (batch.head, batch.relation, batch.tail))
            learner.step(plain_batch(*triple), Negatives(head, tail), sums)
        found.append([*parameters(model).values(), sums[1:]])  # losses are sums in order
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@needs_triton
def test_compact_gradients_do_not_grow_with_the_graph():
    taken = []
    for entities in (1000, 5000):
        model = new_model("TransE", entities, 3, 9)
        learner = new_kernels("triton").learner(model, learning_of(rows=True))
        for step in random_steps(model, [4, 2, 4]):
            learner.step(*step, new_sums())
        own = learner_of(learner)
        taken.append((len(own.gradients["entity"]), len(own.owners["entity"]), len(own.slots)))
    assert taken == [(12, 12, 1000), (12, 12, 5000)]


@paths
def test_row_adagrad_by_its_formula(path):
    model = new_model("DistMult", 6, 2, 5)
    learning = learning_of(rows=True, adagrad=True, adagrad_start=0.25)
    learner = new_kernels(path).learner(model, learning)
    batch, negatives = random_steps(model, [4], untouched=1)[0]
    squares = {n: torch.full((len(table), 1), 0.25) for n, table in parameters(model).items()}
    for _ in range(3):
        table = {name: t.requires_grad_() for name, t in parameters(model).items()}
        relation, soft = table["relation"][batch.relation], torch.nn.functional.softplus
        for head, tail, sign in (
            (batch.head, batch.tail, -1),
            (negatives.head[:, 0], negatives.tail[:, 0], 1),
        ):
            scores = (table["entity"][head] * relation * table["entity"][tail]).sum(1)
            soft(sign * scores).sum().backward(retain_graph=True)
        learner.step(batch, negatives, new_sums())
        for name, before in table.items():
            squares[name] += before.grad.square().mean(1, keepdim=True)
            change = 0.05 * before.grad / (squares[name].sqrt() + ADAGRAD_EPSILON)
            after = parameters(model)[name]
            torch.testing.assert_close(after, before.detach() - change, rtol=1e-4, atol=1e-5)
            kept = learner.checkpoint()[f"square.{name}"].cpu()
            torch.testing.assert_close(kept, squares[name], rtol=1e-4, atol=1e-7)
    assert squares["entity"][5] == 0.25


@fast_twins
@pytest.mark.parametrize("name", ["TransE", "TransD", "TransH"])
def test_rows_are_made_unit_length_in_pieces(twin, name, monkeypatch):
    monkeypatch.setattr("nscaching.kernels.compiled.AT_ONCE", 4)
    model = new_model(name, 10, 3, 9)
    learner = learner_of(new_kernels(twin).learner(model, learning_of()))
    wanted = model.entity_rows(torch.arange(10)).detach()
    torch.testing.assert_close(torch.as_tensor(learner.rows).cpu(), wanted, rtol=1e-6, atol=1e-7)


@needs_triton
@pytest.mark.parametrize("name", ["TransE", "TransD"])
def test_a_checkpoint_without_unit_rows(name, monkeypatch):
    monkeypatch.setattr(SPARSE, 0)
    whole, after = (new_model(name, 20, 3, 9, seed=1) for _ in range(2))
    steps, found = random_steps(whole, [4, 4]), []
    learner = new_kernels("triton").learner(whole, learning_of(rows=True))
    learner.step(*steps[0], new_sums())
    state = {key: copy.deepcopy(value) for key, value in learner.checkpoint().items()}
    assert "ready.entity" not in state
    after.load_state_dict(whole.state_dict())
    resumed = new_kernels("triton").learner(after, learning_of(rows=True))
    resumed.restore(state)
    for each, model in ((learner, whole), (resumed, after)):
        each.step(*steps[1], new_sums())
        found.append(parameters(model))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
