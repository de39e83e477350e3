"""Steps of the cached softmax, compiled: their twin is the plain step."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from numba import njit

from helpers import (
    SLOW,
    batch_of,
    fast_twins,
    for_twins,
    new_kernels,
    new_model,
    new_sampler,
    random_graph,
    threads,
    twins,
)
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.kernels import Kernels, Learning, Rivals
from nscaching.kernels.cpu import adam, softmax_learner
from nscaching.kernels.cpu.random import COMPILE
from nscaching.kernels.cpu.vectors import exp
from nscaching.kernels.learner import AutogradLearner
from nscaching.kernels.softmax import SoftmaxLearner
from nscaching.kernels.softmax_step import SoftmaxStep
from nscaching.models.bilinear import DistMult
from test_kernels_step import LITTLE, OPTIMIZERS, new_sums, parameters

GRAPH = random_graph(entities=14, relations=3, train=60)
ROUNDING = 1e-5  # of a gradient; below it optimizers make whole steps of what is rounding alone

# Of each form, models with compiled queries and models without. L1 is for the moduli of RotatE:
# sums of signs cancel to zero but for rounding, and optimizers make whole steps of that.
MODELS = [
    ("ComplEx", 1), ("DistMult", 1), ("SimplE", 1), ("HolE", 1),
    ("TransE", 2), ("TransM", 2), ("RotatE", 1), ("RotatE", 2),
]  # fmt: skip


def model_of(name, norm=1, dim=8, reciprocal=False, seed=0, graph=GRAPH):
    relations = len(graph.relations) * (2 if reciprocal else 1)
    model = new_model(name, len(graph.entities), relations, dim, norm, seed)
    model.reciprocal = reciprocal
    with torch.no_grad():  # scores of about one: no candidate has all of the probability
        for table in model.parameters():
            table.mul_(0.5)
    return model


def learning_of(optimizer="adagrad", lr=0.01, **rest):
    rest = {"objective": "softmax", "margin": 0.0, "weight_decay": 0.0} | rest
    return Learning(lr=lr, **OPTIMIZERS[optimizer], **rest)


class Run:
    """Steps of one path, with its own model, cache and learner."""

    def __init__(self, path, model, learning, graph=GRAPH, **settings):
        self.graph, self.model, kernels = graph, copy.deepcopy(model), new_kernels(path)
        settings = {"sampler": "nscaching", "refresh": "top", "tail": 6, "n1": 4} | settings
        self.sampler = new_sampler(graph, kernels=kernels, objective="softmax", **settings)
        self.learner = kernels.learner(self.model, learning)

    def rivals(self, batch):
        return self.sampler.sample(batch, self.model)

    def step(self, rows):
        sums, batch = new_sums(), batch_of(self.graph, rows)
        self.learner.step(batch, self.rivals(batch), sums)
        return sums

    def state(self):
        return [*parameters(self.model).values(), *self.sampler.state().values()]


def batches(seed, sizes, graph=GRAPH):
    """Choose the triples of some steps; a triple may come twice in a step."""
    random = np.random.default_rng(seed)
    return [random.integers(len(graph.train), size=size) for size in sizes]


def is_clear(run, rows):
    """Tell whether rounding decides nothing in the next step of a run on the reference path."""
    model, learning = copy.deepcopy(run.model).double(), run.learner.learning
    batch, tick = batch_of(run.graph, rows), run.sampler.tick.clone()
    rivals = dataclasses.replace(run.rivals(batch), refreshing=False)
    run.sampler.tick.copy_(tick)
    learner = SoftmaxLearner(model, learning, Kernels().distances)
    before = parameters(model)
    learner.step(batch, rivals, new_sums())
    for name, table in model.named_parameters():
        gradient = table.grad
        decayed = gradient + learning.weight_decay * len(batch) * before[name]
        each = torch.cat([gradient[gradient != 0], decayed[decayed != 0]])
        if (each.abs() < ROUNDING).any():
            return False
    return True


@for_twins(
    10,
    kind=MODELS,
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    penalty=st.sampled_from([{}, {"weight_decay": 0.003}, {"cubes": 0.05}]),
    reciprocal=st.booleans(),
    relation_weight=st.sampled_from([0.0, 0.7]),
    scale=st.sampled_from([1.0, 1.5]),
    n1=st.sampled_from([0, 1, 5]),
    near=st.sampled_from([0, 1, 6]),
    tail=st.sampled_from([1, 6, 50]),
    refresh=st.sampled_from(["top", "importance", "uniform"]),
    sizes=st.lists(st.integers(1, 15), min_size=3, max_size=4),
    dim=st.sampled_from([6, 10, 18]),
    seed=st.integers(0, 99),
)
def test_steps_agree(
    twin, kind, optimizer, penalty, reciprocal, relation_weight, scale, n1, near, tail, refresh,
    sizes, dim, seed,
):  # fmt: skip
    name, norm = kind
    model = model_of(name, norm, dim, reciprocal, seed)
    if model.family == "translational" and "cubes" in penalty:
        penalty = {"weight_decay": 0.003}
    rest = {"scale": scale, "relation_weight": relation_weight} | penalty
    learning = learning_of(optimizer, **rest)
    settings = {"n1": n1, "near": near, "tail": tail, "refresh": refresh, "seed": seed}
    settings["temperature"] = 0.7
    plain, fast = (Run(path, model, learning, **settings) for path in ("reference", twin))
    steps = 0
    if twin in SLOW:  # three steps are enough for Adam's momenta and their powers to matter
        sizes = [min(size, 5) for size in sizes[:3]]
    for rows in batches(seed, sizes):
        if not is_clear(plain, rows):
            continue
        steps += 1
        sums, fast_sums = plain.step(rows), fast.step(rows)
        for (key, table), got in zip(
            parameters(plain.model).items(), parameters(fast.model).values(), strict=True
        ):
            close = {"rtol": 1e-6, "atol": 1e-3 * steps * learning.lr}
            torch.testing.assert_close(got, table, **close, msg=lambda m, key=key: f"{key}: {m}")
        for side, ids in plain.sampler.state().items():
            assert torch.equal(fast.sampler.state()[side], ids), side
        torch.testing.assert_close(fast_sums, sums, rtol=3e-5, atol=1e-5)
    assume(steps)


@twins
@pytest.mark.parametrize("name", ["ComplEx", "SimplE"])
def test_a_small_batch_and_many_relations(twin, name):
    graph, rows = random_graph(entities=8, relations=40, train=60), [3]
    model, learning = model_of(name, graph=graph), learning_of("adagrad", relation_weight=0.5)
    runs = [Run(path, model, learning, graph, n1=0, tail=1) for path in ("reference", twin)]
    for _ in range(2):
        sums, fast_sums = (run.step(rows) for run in runs)
        torch.testing.assert_close(fast_sums, sums, rtol=3e-5, atol=1e-5)


@twins
def test_which_steps_are_compiled(twin):
    kernels = new_kernels(twin)
    for name in ("ComplEx", "RotatE", "TransM", "TransH", "TransR"):
        learner = kernels.learner(model_of(name), learning_of())
        learner = getattr(learner, "learner", learner)  # of a GPU that is far away
        assert isinstance(learner, SoftmaxStep) == (name not in ("TransH", "TransR"))
    learner = kernels.learner(model_of("ComplEx").double(), learning_of())
    assert isinstance(getattr(learner, "learner", learner), SoftmaxLearner)


class Gated(DistMult):
    """With a third table."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gate = torch.nn.Parameter(torch.empty(self.relations, self.dim))


class Bounded(DistMult):
    """With entity vectors that are not rows of the table."""

    def entity_rows(self, ids):
        return super().entity_rows(ids).tanh()


class Weighted(DistMult):
    """With numbers for each entity."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("degree", torch.ones(self.entities))


@twins
@pytest.mark.parametrize("kind", [Gated, Bounded, Weighted])
def test_models_with_more_than_rows_of_two_tables_learn_by_autograd(twin, kind):
    learner = new_kernels(twin).learner(kind(14, 3, 8), learning_of())
    assert isinstance(getattr(learner, "learner", learner), SoftmaxLearner)


@twins
@pytest.mark.parametrize(("name", "norm"), [("ComplEx", 1), ("RotatE", 1), ("TransE", 1)])
def test_a_cache_that_rests_stays_as_it_is(twin, name, norm):
    model, (rows,) = model_of(name, norm), batches(0, [6])
    found = []
    for path in ("reference", twin):
        run = Run(path, model, learning_of("adam"), lazy=1)
        run.sampler.begin_epoch(2)
        before = [ids.clone() for ids in run.sampler.state().values()]
        sums = run.step(rows)
        assert all(map(torch.equal, before, run.sampler.state().values()))
        found.append(sums)
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@twins
@pytest.mark.parametrize("name", ["ComplEx", "TransE"])
def test_a_cache_keeps_what_it_holds_where_nothing_is_better(twin, name):
    """All entities are in the tail: the cache has the best of all after one step."""
    model, rows = model_of(name, 2), np.arange(8)
    run, batch = Run(twin, model, learning_of(), tail=50), batch_of(GRAPH, rows)
    run.step(rows)
    for side in Side:
        anchor, _ = side.query(batch.head, batch.tail)
        best = model.score_all(side, anchor, batch.relation).topk(4, 1).indices.sort(1).values
        kept = run.sampler.state()[f"{side.value}_cache"][batch.key(side)]
        assert torch.equal(kept.long(), best)


@twins
def test_equal_scores_fill_the_cache_with_different_entities(twin):
    model = model_of("DistMult")
    with torch.no_grad():
        model.entity.fill_(0.25)
    run = Run(twin, model, learning_of(), n1=5)
    run.step(np.arange(10))
    for ids in run.sampler.state().values():
        assert (ids[:, 1:] > ids[:, :-1]).all()
        assert ids.min() >= 0
        assert ids.max() < model.entities


@twins
@pytest.mark.filterwarnings("ignore:All-NaN")  # of numpy, which interprets Triton's code
@pytest.mark.parametrize("name", ["ComplEx", "TransE", "SimplE"])
def test_scores_that_are_no_numbers_are_seen_in_the_loss(twin, name):
    model, rows = model_of(name, 2), np.arange(10)
    with torch.no_grad():
        model.entity[batch_of(GRAPH, rows).tail[0]] = float("nan")
    run = Run(twin, model, learning_of())
    sums = run.step(rows)
    assert not sums[0].isfinite()
    assert sums[3] == 0
    for ids in run.sampler.state().values():
        assert ids.min() >= 0
        assert ids.max() < model.entities


@twins
def test_large_scores_have_finite_losses(twin):
    model = model_of("DistMult")
    with torch.no_grad():
        model.entity.mul_(1e4)
    found = [Run(path, model, learning_of()).step(np.arange(6))[0] for path in ("reference", twin)]
    assert found[0].isfinite()
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=0)


@for_twins(
    60,
    entities=st.one_of(st.integers(1, 300), st.integers(2**20, 2**31 - 1)),
    count=st.integers(1, 40),
    seed=st.integers(0, 2**40),
    tick=st.integers(0, 10**6),
)
def test_tails_agree(twin, entities, count, seed, tick):
    tick = torch.tensor(tick)
    if twin in SLOW:
        count = min(count, 9)
    wanted = Kernels().tail(entities, count, seed, tick)
    got = new_kernels(twin).tail(entities, count, seed, tick)
    assert got.dtype == wanted.dtype
    assert torch.equal(got.cpu(), wanted)


# The learners' state.


@twins
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize(("name", "norm"), [("ComplEx", 1), ("TransE", 2), ("RotatE", 1)])
def test_another_path_goes_on_from_a_checkpoint(twin, optimizer, name, norm):
    """There and back: what the twin writes after a step of its own, the plain path reads."""
    model, learning = model_of(name, norm), learning_of(optimizer)
    size = 3 if twin in SLOW else 12
    first, second, third, fourth = batches(1, [size] * 4)
    one = Run("reference", model, learning)
    one.step(first)
    one.step(second)
    other = same_step(one, twin, learning, third)
    same_step(other, "reference", learning, fourth)


def same_step(one, path, learning, rows):
    """Make the next step of a run on its path and, from its checkpoint, on another one."""
    other = Run(path, one.model, learning)
    state = copy.deepcopy(one.learner.checkpoint())
    other.sampler.restore(copy.deepcopy(one.sampler.checkpoint()))
    other.learner.restore(state)
    assert {part.split(".")[0] for part in state} >= {"square", "steps"}
    assert ("mean.entity" in state) == (not learning.adagrad)
    sums = one.step(rows), other.step(rows)
    torch.testing.assert_close(*sums, rtol=3e-5, atol=1e-5)
    for (key, table), got in zip(
        parameters(one.model).items(), parameters(other.model).values(), strict=True
    ):
        far = (got - table).abs() > 1e-3 * learning.lr
        assert far.float().mean() < 0.02, key  # rounding decides steps of the smallest gradients
    return other


@fast_twins
@pytest.mark.parametrize("name", ["ComplEx", "TransE", "SimplE"])
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(twin, name):
    model, rows = model_of(name, 2), batches(2, [9, 9, 9])
    whole, before = (Run(twin, model, learning_of("adam")) for _ in range(2))
    for some in rows:
        whole.step(some)
    for some in rows[:2]:
        before.step(some)
    after = Run(twin, before.model, learning_of("adam"))
    after.sampler.restore(copy.deepcopy(before.sampler.checkpoint()))
    after.learner.restore(copy.deepcopy(before.learner.checkpoint()))
    after.step(rows[2])
    assert all(map(torch.equal, whole.state(), after.state()))


# On CPUs.


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    ("name", "norm"), [("ComplEx", 1), ("TransE", 1), ("TransM", 2), ("RotatE", 1), ("SimplE", 1)]
)
def test_threads_do_not_change_a_step(name, norm, optimizer, monkeypatch):
    monkeypatch.setattr(softmax_learner, "BLOCK", 32)
    monkeypatch.setattr(LITTLE, 0)
    graph = random_graph(entities=70, relations=4, train=400)
    model = model_of(name, norm, 106, graph=graph)
    found = []
    for count in (1, 2, 3):
        with threads(count):  # torch's own, too
            run = Run("numba", model, learning_of(optimizer, weight_decay=1e-4), graph, tail=30)
            sums = [run.step(rows) for rows in batches(0, [150, 7, 150], graph)]
        found.append([*run.state(), *sums])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_many_blocks_of_queries_are_one_step():
    """A step of several blocks, each with its own products, and of large rows."""
    graph = random_graph(entities=300, relations=4, train=2000)
    for name in ("ComplEx", "TransM"):
        model, rows = model_of(name, 2, 40, graph=graph), np.arange(1, 602)
        settings = {"tail": 100, "n1": 20, "graph": graph}
        plain, fast = (
            Run(path, model, learning_of(), **settings) for path in ("reference", "numba")
        )
        assert isinstance(plain.learner, AutogradLearner)
        for _ in range(2):
            sums, fast_sums = plain.step(rows), fast.step(rows)
            torch.testing.assert_close(fast_sums, sums, rtol=1e-4, atol=1e-4)
        for ids, got in zip(
            plain.sampler.state().values(), fast.sampler.state().values(), strict=True
        ):
            assert (ids != got).float().mean() < 1e-3
        for table, got in zip(plain.model.parameters(), fast.model.parameters(), strict=True):
            assert ((table - got).abs() > 1e-4).float().mean() < 1e-3


@njit(**COMPILE)
def compiled_exp(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


def test_exponentials():
    x = np.append(np.linspace(-88, 0, 100_001), [-1e30, -np.inf, -0.0, -1e-30, np.nan])
    x = x.astype(np.float32)
    got, exact = np.empty_like(x), np.exp(x.astype(np.float64))
    compiled_exp(x, got)
    large = x >= -87
    np.testing.assert_allclose(got[large], exact[large], rtol=5e-7)
    assert (got[x < -87] == 0).all()
    assert np.isnan(got[-1])
    assert got[-3] == got[-2] == 1


def test_memory_is_used_again():
    run = Run("numba", model_of("ComplEx"), learning_of())
    run.step(np.arange(20))
    before = {name: part.data_ptr() for name, part in run.learner.room.items()}
    for size in (20, 7):
        run.step(np.arange(size))
    assert {name: part.data_ptr() for name, part in run.learner.room.items()} == before
    assert (run.learner.where == -1).all()


@pytest.mark.parametrize(("places", "entities"), [(50_000, 9), (50_000, 70_000), (300, 5000)])
def test_places_are_grouped_by_entity(places, entities):
    random = np.random.default_rng(places + entities)
    ids, active = random.integers(entities, size=(places, 1)), random.random(places) < 0.9
    order, spare, touched = np.empty((3, places), np.int64)
    starts = np.empty(places + 1, np.int64)
    different = adam.group(ids, active, order, spare, touched, starts)
    wanted = np.flatnonzero(active)
    wanted = wanted[np.argsort(ids[wanted, 0], kind="stable")]
    assert (order[: len(wanted)] == wanted).all()
    every, first = np.unique(ids[wanted, 0], return_index=True)
    assert (touched[:different] == every).all()
    assert starts[: different + 1].tolist() == [*first, len(wanted)]


def test_a_tail_too_long_for_a_gpu_is_told():
    kernels = pytest.importorskip("nscaching.kernels.gpu.kernels").TritonKernels()
    learner = kernels.new_softmax_learner(model_of("ComplEx"), learning_of())
    rivals = Rivals(torch.arange(65_537), 70_000)
    with pytest.raises(UserError, match=r"^tail 65537: at most 65,536 on a GPU; objective"):
        learner.contrast(None, None, rivals, None)
