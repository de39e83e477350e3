"""Gradient steps with several negatives of each triple."""

from __future__ import annotations

import copy

import pytest
import torch

from helpers import (
    SLOW,
    TINY,
    TWINS,
    learner_of,
    new_kernels,
    new_model,
    plain_batch,
    random_graph,
    twins,
)
from nscaching import TrainConfig
from nscaching.kernels import Kernels, Learning
from nscaching.kernels.batch import Negatives
from nscaching.kernels.learner import AutogradLearner
from nscaching.training.trainer import Trainer
from test_kernels_step import NORMED, QUERIED, new_sums

ENTITIES, RELATIONS = 9, 2
CLEAR = 1e-3  # gradients below it, Adam turns into whole steps of what may be rounding


def random_step(size, count, seed, adversarial=0.0):
    """Draw triples and negatives of which some are the triple itself, or occur twice."""
    random = torch.Generator().manual_seed(seed)

    def ids(*shape, below=ENTITIES - 2):  # the last ones are in no triple
        return torch.randint(below, shape, generator=random)

    batch = plain_batch(ids(size), ids(size, below=RELATIONS), ids(size))
    replace, entity = ids(size, below=2).bool(), ids(size, count)
    drawn = batch.corrupt(replace, entity, entity)
    return batch, Negatives(drawn.head, drawn.tail, replace, adversarial)


def clear_gradients(model, learning, batch, negatives):
    """Say of each parameter whether rounding leaves its gradient what it is.

    It does not where a negative is the triple itself and all but rounding cancels out.
    """
    exact = copy.deepcopy(model).double()
    losses = AutogradLearner(exact, learning).loss(batch, negatives)[0]
    losses.sum().backward()
    learnt = losses > 0
    rows = {ENTITIES: [batch.head, batch.tail, negatives.head, negatives.tail]}
    rows[RELATIONS] = [batch.relation]
    found = {}
    for name, table in exact.named_parameters():
        untouched = torch.ones(len(table), 1).bool()
        for places in rows[len(table)]:
            untouched[places[learnt].flatten()] = False
        found[name] = (table.grad.abs() > CLEAR) | untouched
    return found


@twins
@pytest.mark.parametrize(("name", "norm"), NORMED)
@pytest.mark.parametrize(
    ("objective", "adversarial"),
    [("margin", 0.0), ("logistic", 0.0), ("shifted", 1.0), ("margin", 0.5)],
)
@pytest.mark.parametrize(("size", "count", "dim"), [(6, 3, 9), (1, 1, 16), (3, 7, 19)])
def test_steps_agree(twin, name, norm, objective, adversarial, size, count, dim):
    if twin in SLOW:
        size = min(size, 2 if (size, objective) == (3, "logistic") else 3)
    make_equal_steps(twin, name, norm, objective, adversarial, size, count, dim)


@pytest.mark.parametrize("objective", ["margin", "logistic", "shifted"])
@pytest.mark.parametrize(("size", "count"), [(6, 3), (1, 1), (3, 7)])
def test_weighted_sums_of_signs_agree(objective, size, count):
    make_equal_steps("numba", "TransM", 1, objective, 0.0, size, count, 9)


def make_equal_steps(twin, name, norm, objective, adversarial, size, count, dim):
    """Make the same steps on the reference path and its twin, and compare what is clear."""
    model = new_model(name, ENTITIES, RELATIONS, dim, norm, seed=dim)
    learning = Learning(objective, 1.5, 0.01, 0.0)
    steps = [random_step(size, count, seed, adversarial) for seed in (1, 2)]
    twin_model = copy.deepcopy(model)
    learner = Kernels().learner(model, learning)
    fast = new_kernels(twin).learner(twin_model, learning)
    assert isinstance(learner_of(fast), AutogradLearner) == (twin == "triton" and name in QUERIED)
    clear = {name: torch.ones_like(table).bool() for name, table in model.named_parameters()}
    for batch, negatives in steps:
        for key, known in clear_gradients(model, learning, batch, negatives).items():
            clear[key] &= known
        sums, fast_sums = new_sums(), new_sums()
        learner.step(batch, negatives, sums)
        fast.step(batch, negatives, fast_sums)
        torch.testing.assert_close(fast_sums, sums, rtol=2e-3, atol=1e-5)
        for key, table in model.named_parameters():
            got, sure = dict(twin_model.named_parameters())[key].detach(), clear[key]
            assert sure.any()
            tolerance = {"rtol": 1e-6, "atol": 2e-3 * learning.lr}
            torch.testing.assert_close(got[sure], table.detach()[sure], **tolerance)
        # What was not clear may be elsewhere now, and would change the next gradients of the rest.
        twin_model.load_state_dict(model.state_dict())
        fast.reload()


@twins
@pytest.mark.parametrize("name", ["DistMult", "ComplEx", "ANALOGY", "SimplE"])
def test_penalised_cubes_agree(twin, name):
    model = new_model(name, ENTITIES, RELATIONS, 10, 1, seed=3)
    learning = Learning("shifted", 1.5, 0.01, 0.0, cubes=0.2)
    batch, negatives = random_step(4, 3, 1, adversarial=1.0)
    twin_model = copy.deepcopy(model)
    Kernels().learner(model, learning).step(batch, negatives, new_sums())
    new_kernels(twin).learner(twin_model, learning).step(batch, negatives, new_sums())
    for table, got in zip(model.parameters(), twin_model.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), table.detach(), rtol=1e-6, atol=2e-5)


@pytest.mark.parametrize("twin", [twin for twin in TWINS if twin != "numba"])
@pytest.mark.parametrize("name", ["TransE", "TransD", "ComplEx"])
@pytest.mark.parametrize("programs", [1, 5, 1000])
def test_programs_share_candidates(twin, name, programs, monkeypatch):
    monkeypatch.setattr("nscaching.kernels.gpu.learner.MOST_PROGRAMS", programs)
    model = new_model(name, ENTITIES, RELATIONS, 6, 1, seed=3)
    learning, step = Learning("logistic", 0.0, 0.01, 0.0), random_step(2, 10, 1)
    learner = Kernels().learner(copy.deepcopy(model), learning)
    fast = new_kernels(twin).learner(model, learning)
    for each in (learner, fast):
        each.step(*step, new_sums())
    state, fast_state = learner.checkpoint(), fast.checkpoint()
    for key in [f"mean.{table}" for table, _ in model.named_parameters()]:
        torch.testing.assert_close(fast_state[key].cpu(), state[key], rtol=1e-4, atol=1e-5)


@twins
@pytest.mark.parametrize("name", ["TransE", "TransD", "ComplEx", "RotatE"])
def test_rows_without_a_gradient_stay_with_row_adam(twin, name):
    model = new_model(name, ENTITIES, RELATIONS, 6, 1, seed=3)
    learning, twin_model = Learning("logistic", 0.0, 0.01, 0.003, rows=True), copy.deepcopy(model)
    learner = Kernels().learner(model, learning)
    fast = new_kernels(twin).learner(twin_model, learning)
    for seed in (1, 2):
        for each in (learner, fast):
            each.step(*random_step(2, 3, seed), new_sums())
    state, fast_state = learner.checkpoint(), fast.checkpoint()
    for key in [f"mean.{table}" for table, _ in model.named_parameters()]:
        torch.testing.assert_close(fast_state[key].cpu(), state[key], rtol=1e-4, atol=1e-5)
        assert (state[key] == 0).all(1).any() == ("entity" in key)


@twins
@pytest.mark.parametrize("seed", [4, 5])
def test_a_single_negative_need_not_say_its_side(twin, seed):
    model = new_model("TransE", ENTITIES, RELATIONS, 6, 1, seed=3)
    learning = Learning("shifted", 1.5, 0.01, 0.0)
    batch, negatives = random_step(4, 1, seed)
    head, tail = batch.head.unsqueeze(1), batch.tail.unsqueeze(1)
    assert ((negatives.head != head) | (negatives.tail != tail)).all()  # what it is made of is seen
    found = []
    for given in (negatives, Negatives(negatives.head, negatives.tail)):
        own = copy.deepcopy(model)
        new_kernels(twin).learner(own, learning).step(batch, given, new_sums())
        found.append(list(own.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@twins
@pytest.mark.parametrize("name", ["TransE", "TransD", "ComplEx", "RotatE"])
def test_more_candidates_than_a_program_scores(twin, name):
    model = new_model(name, 300, RELATIONS, 6, 1, seed=3)
    random = torch.Generator().manual_seed(0)
    batch = plain_batch(torch.tensor([1, 2]), torch.tensor([0, 1]), torch.tensor([3, 4]))
    entity = torch.randint(300, (2, 200), generator=random)
    replace = torch.tensor([True, False])
    drawn = batch.corrupt(replace, entity, entity)
    learning = Learning("logistic", 0.0, 0.01, 0.0)
    sums, fast_sums = new_sums(), new_sums()
    twin_model = copy.deepcopy(model)
    Kernels().learner(model, learning).step(batch, drawn, sums)
    new_kernels(twin).learner(twin_model, learning).step(batch, drawn, fast_sums)
    torch.testing.assert_close(fast_sums, sums, rtol=1e-4, atol=1e-5)


@twins
def test_a_loss_that_is_no_number_is_noticed(twin):
    model = new_model("TransE", ENTITIES, RELATIONS, 4, 1, seed=1)
    with torch.no_grad():
        model.relation.fill_(float("nan"))
    sums = new_sums()
    learner = new_kernels(twin).learner(model, Learning("shifted", 1.0, 0.01, 0.0))
    learner.step(*random_step(4, 3, 1, 1.0), sums)
    assert not torch.isfinite(sums[0])
    assert sums[3] == 0


@twins
@pytest.mark.parametrize("generator", ["TransE", "TransD", "ComplEx", "RotatE", "TransM"])
def test_generators_learn_alike(twin, generator):
    graph = random_graph(entities=30, train=6 if twin in SLOW else 80)

    def train(path):
        device = "cuda" if twin == "triton" and torch.cuda.is_available() else "cpu"
        settings = {"model": "DistMult", "sampler": "kbgan", "generator": generator, "lr": 1e-6}
        settings |= {"kernels": path, "device": device, "n1": 7}
        trainer = Trainer(graph, TrainConfig.from_dict({**TINY, **settings}))
        plain = path == "reference" or (path == "triton" and generator in QUERIED)
        assert isinstance(trainer.sampler.scorer, AutogradLearner) == plain
        records = [trainer.epoch(epoch) for epoch in (1, 2)]
        return records, trainer.sampler.checkpoint(), trainer.sampler.generator

    (records, state, _), (twin_records, twin_state, model) = train("reference"), train(twin)
    for one, other in zip(records, twin_records, strict=True):
        for name in ("loss", "generator_loss", "reward", "entropy"):
            assert other[name] == pytest.approx(one[name], rel=1e-3, abs=1e-4), name
    for name, _ in model.named_parameters():
        # Means of gradients; Adam's steps are whole ones even of what is rounding alone.
        one, other = (s[f"optimizer.mean.{name}"].cpu() for s in (state, twin_state))
        torch.testing.assert_close(other, one, rtol=5e-3, atol=1e-4)
        assert one.abs().max() > 1e-3
