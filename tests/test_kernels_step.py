"""The gradient step on every path: scores, loss, gradients and Adam."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

from helpers import (
    SLOW,
    TINY,
    TWINS,
    fast_twins,
    for_twins,
    learner_of,
    new_kernels,
    new_model,
    paths,
    plain_batch,
    random_graph,
    random_steps,
    threads,
    twins,
)
from nscaching import TrainConfig
from nscaching.data.index import Side
from nscaching.kernels import Kernels, Learning
from nscaching.kernels.batch import Negatives
from nscaching.kernels.codes import GIVEN, KINDS
from nscaching.kernels.cpu.learner import NumbaLearner
from nscaching.kernels.cpu.query_learner import NumbaQueries
from nscaching.kernels.learner import AutogradLearner, cubes
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.models import MODELS, Form
from nscaching.training.trainer import Trainer

LITTLE = "nscaching.kernels.cpu.threads.LITTLE"  # below it one thread makes all of a loop
ROUNDING = 1e-5  # of a gradient; below it Adam makes whole steps of what is rounding alone
# On CPUs torch makes the queries of these models; on GPUs they learn by autograd.
QUERIED = ["ANALOGY", "HolE", "RESCAL", "RotatE", "SimplE", "TransM"]
COMPILED = [*sorted(kind.__name__ for kind in KINDS), *QUERIED]
OPTIMIZERS: dict[str, dict[str, float]] = {
    "adam": {},
    "row-adam": {"rows": True},
    "adagrad": {"adagrad": True},
    "adagrad from 0.01": {"adagrad": True, "adagrad_start": 0.01},
    "row-adagrad": {"rows": True, "adagrad": True, "adagrad_start": 0.01},
}
models = pytest.mark.parametrize("name", COMPILED)
# Products know no norm. Weighted sums of signs (TransM, L1) cancel to zero but for rounding.
NORMED = [
    (name, norm)
    for name in COMPILED
    for norm in ((1, 2) if MODELS.get(name).family == "translational" else (1,))
    if (name, norm) != ("TransM", 1)
]
kinds = pytest.mark.parametrize(("name", "norm"), NORMED)


def new_sums():
    return torch.zeros(4, dtype=torch.float64)


def parameters(model):
    return {name: table.detach().clone() for name, table in model.named_parameters()}


def is_clear(model, learning, batch, negatives):
    """Tell whether rounding decides nothing: no loss next to its bend, no gradient next to zero.

    A gradient of zero is clear where no triple that teaches, or is penalised, holds the row.
    """
    exact = copy.deepcopy(model).double()
    positive = exact.score(batch.head, batch.relation, batch.tail)
    negative = exact.score(negatives.head, batch.relation.unsqueeze(1), negatives.tail)[:, 0]
    teaches = torch.ones(len(batch), dtype=torch.bool)
    if learning.objective == "margin":
        bend = learning.margin - positive + negative
        teaches = bend > 0
    else:
        bend = torch.nn.functional.softplus(negative) - LOGISTIC_ZERO
    if (bend.abs() < 1e-4).any():
        return False
    exact_learner = AutogradLearner(exact, learning)
    total = exact_learner.loss(batch, negatives)[0].sum()
    if learning.cubes:
        total = total + learning.cubes * cubes(exact, batch.head, batch.relation, batch.tail)
        teaches[:] = True
    total.backward()
    ids = torch.cat([batch.head, batch.tail, negatives.head[:, 0], negatives.tail[:, 0]])
    held = {"entity": ids[teaches.repeat(4)], "relation": batch.relation[teaches]}
    for name, table in exact.named_parameters():
        row = held["entity" if len(table) == model.entities else "relation"].unique()
        gradient = table.grad[row]
        if name == "relation" and (gradient == gradient.round()).all():
            continue  # sums of signs (TransE, L1), which are exact
        decayed = gradient + learning.weight_decay * len(batch) * table[row]
        if (torch.cat([gradient, decayed]).abs() < ROUNDING).any():
            return False
    return True


def same_steps(twin, model, learning, steps):
    """Make the same steps on the reference path and its twin, and compare after each.

    The twin goes on from the parameters of the reference: rounding in one step would change the
    sums of the next by more than their own rounding.
    """
    twin_model = copy.deepcopy(model)
    learner = Kernels().learner(model, learning)
    fast = new_kernels(twin).learner(twin_model, learning)
    for batch, negatives in steps:
        sums, fast_sums = new_sums(), new_sums()
        learner.step(batch, negatives, sums)
        fast.step(batch, negatives, fast_sums)
        for name, table in parameters(model).items():
            got = parameters(twin_model)[name]
            # Adam's steps are about as large as the learning rate.
            close = {"rtol": 1e-6, "atol": 1e-3 * learning.lr}
            torch.testing.assert_close(got, table, **close, msg=lambda m, name=name: f"{name}: {m}")
        assert fast_sums[1] == sums[1]
        torch.testing.assert_close(fast_sums, sums, rtol=2e-5, atol=1e-6)
        twin_model.load_state_dict(model.state_dict())
        fast.reload()


@for_twins(
    8,
    kind=NORMED,
    objective=["margin", "logistic"],
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    weight_decay=st.sampled_from([0.0, 0.003]),
    margin=st.sampled_from([0.5, 5.0]),
    sizes=st.lists(st.integers(1, 12), min_size=4, max_size=6),
    dim=st.sampled_from([9, 16, 19]),
    seed=st.integers(0, 999),
)
def test_steps_agree(twin, kind, objective, optimizer, weight_decay, margin, sizes, dim, seed):
    name, norm = kind
    model = new_model(name, 7, 2, dim, norm, seed)
    learning = Learning(objective, margin, 0.01, weight_decay, **OPTIMIZERS[optimizer])
    if twin in SLOW:  # three steps are enough for Adam's momenta and their powers to matter
        sizes = [min(size, 6) for size in sizes[:3]]
    # Lazily: whether a step is clear depends on the ones before.
    steps = random_steps(model, sizes, seed, untouched=2)
    clear = (step for step in steps if is_clear(model, learning, *step))
    first = next(clear, None)
    assume(first is not None)
    same_steps(twin, model, learning, itertools.chain([first], clear))


@for_twins(
    8,
    name=[name for name in COMPILED if MODELS.get(name).family == "semantic"],
    objective=["margin", "logistic"],
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    cubes=st.sampled_from([0.01, 0.3]),
    dim=st.sampled_from([9, 16, 19]),
    seed=st.integers(0, 999),
)
def test_steps_with_penalised_cubes_agree(twin, name, objective, optimizer, cubes, dim, seed):
    model = new_model(name, 7, 2, dim, 1, seed)
    learning = Learning(objective, 0.5, 0.01, 0.0, cubes=cubes, **OPTIMIZERS[optimizer])
    steps = random_steps(model, [3, 6, 2, 5], seed, untouched=2)
    clear = (step for step in steps if is_clear(model, learning, *step))
    first = next(clear, None)
    assume(first is not None)
    same_steps(twin, model, learning, itertools.chain([first], clear))


# Of RotatE's moduli, rounding decides more numbers in autograd's steps.
@fast_twins
@pytest.mark.parametrize(("name", "norm"), [kind for kind in NORMED if kind != ("RotatE", 1)])
def test_large_steps_agree(twin, name, norm):
    """No gradient is lost where thousands of rows move at once.

    Rounding decides some numbers of so many, but few.
    """
    model = new_model(name, 5000, 40, 64, norm)
    learning = Learning("margin", 5.0, 0.01, 0.0)
    twin_model = copy.deepcopy(model)
    learner = Kernels().learner(model, learning)
    fast = new_kernels(twin).learner(twin_model, learning)
    for batch, negatives in random_steps(model, [4096, 4096, 1000, 4096]):
        # Gradients of a negative that is its positive are zero, or what rounding leaves of it.
        other = (batch.head != negatives.head[:, 0]) | (batch.tail != negatives.tail[:, 0])
        batch = plain_batch(batch.head[other], batch.relation[other], batch.tail[other])
        negatives = Negatives(negatives.head[other], negatives.tail[other])
        sums, fast_sums = new_sums(), new_sums()
        learner.step(batch, negatives, sums)
        fast.step(batch, negatives, fast_sums)
        torch.testing.assert_close(fast_sums, sums, rtol=1e-3, atol=0)
    for table, twin in zip(model.parameters(), twin_model.parameters(), strict=True):
        other = (table - twin).abs() > 0.05 * learning.lr
        assert other.float().mean() < 1e-4


def triples(*rows):
    """Make a batch of (head, relation, tail, head of the negative, tail of the negative)."""
    head, relation, tail, false_head, false_tail = torch.tensor(rows).T.contiguous()
    negatives = Negatives(false_head.unsqueeze(1), false_tail.unsqueeze(1))
    return plain_batch(head, relation, tail), negatives


# Entities of more than one part: a negative that is the positive, or its other entity; loops.
SPECIAL = [
    [(0, 0, 1, 2, 1), (0, 0, 1, 0, 1)],
    [(0, 0, 1, 1, 1), (1, 1, 2, 1, 1), (2, 0, 2, 2, 0)],
    [(3, 0, 3, 4, 3), (3, 1, 0, 3, 3), (0, 0, 4, 0, 1)],
    [(0, 0, 1, 0, 2), (0, 0, 1, 0, 2), (0, 0, 1, 3, 1), (0, 0, 1, 0, 2)],
]


@twins
@kinds
@pytest.mark.parametrize("objective", ["margin", "logistic"])
def test_special_triples(twin, name, norm, objective):
    learning = Learning(objective, 5.0, 0.01, 0.0)
    dim = 4 if name == "RotatE" else 9  # whose scores are twice as far from zero
    for rows in SPECIAL:
        some = (new_model(name, 6, 2, dim, norm, seed) for seed in range(20))
        model = next(model for model in some if is_clear(model, learning, *triples(*rows)))
        same_steps(twin, model, learning, [triples(*rows)])


@paths
@models
def test_nothing_is_learnt_from_a_negative_that_is_the_positive(path, name):
    model = new_model(name, 6, 2, 9)
    before, sums = parameters(model), new_sums()
    learner = new_kernels(path).learner(model, Learning("margin", 5.0, 0.01, 0.0))
    learner.step(*triples((0, 0, 1, 0, 1), (2, 1, 3, 2, 3)), sums)
    torch.testing.assert_close(sums, torch.tensor([10.0, 2.0, 0.0, 1.0]).double())
    assert all(torch.equal(table, before[key]) for key, table in parameters(model).items())


@paths
@models
def test_a_batch_that_teaches_nothing(path, name):
    model = new_model(name, 6, 2, 9)
    kernels = new_kernels(path)
    learner = kernels.learner(model, Learning("margin", 0.0, 0.01, 0.0))
    batch, negatives = triples((0, 0, 1, 2, 1), (3, 1, 4, 3, 5))
    positive = model.score(batch.head, batch.relation, batch.tail)
    negative = model.score(negatives.head[:, 0], batch.relation, negatives.tail[:, 0])
    better = positive > negative
    head, tail = (  # the better of the two is the positive
        torch.where(better, true, false[:, 0])
        for true, false in ((batch.head, negatives.head), (batch.tail, negatives.tail))
    )
    worse = Negatives(
        torch.where(better.unsqueeze(1), negatives.head, batch.head.unsqueeze(1)),
        torch.where(better.unsqueeze(1), negatives.tail, batch.tail.unsqueeze(1)),
    )
    before, sums = parameters(model), new_sums()
    learner.step(plain_batch(head, batch.relation, tail), worse, sums)
    assert sums.tolist() == [0, 0, 0, 1]
    assert all(torch.equal(table, before[key]) for key, table in parameters(model).items())


@paths
@models
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_weight_decay_grows_with_the_batch(path, name, size, count):
    # The negatives are the positives: their gradients cancel and leave the decay alone.
    model, triple = new_model(name, 6, 2, 9), (0, 0, 1, 0, 1)
    before, learning = parameters(model), Learning("margin", 5.0, 0.01, 0.03)
    batch, negatives = triples(*[triple] * size)
    same = torch.zeros(size, dtype=torch.bool)
    negatives = Negatives(negatives.head.repeat(1, count), negatives.tail.repeat(1, count), same)
    learner = new_kernels(path).learner(model, learning)
    learner.step(batch, negatives, new_sums())
    for key, table in before.items():
        mean = learner.checkpoint()[f"mean.{key}"].cpu()
        torch.testing.assert_close(mean, 0.1 * 0.03 * size * table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "row-adam", "adagrad", "row-adagrad"])
@pytest.mark.parametrize("objective", ["logistic", "1vsall", "kvsall"])
def test_an_epoch_penalises_once(optimizer, objective):
    # 31 triples in batches of 30: the batch of one must not count like the batch of 30.
    settings = {"optimizer": optimizer, "objective": objective, "kernels": "reference"}
    settings |= {"model": "DistMult", "batch_size": 30, "penalty": 0.25, "sampler": "none"}
    if objective == "logistic":
        settings["sampler"] = "bernoulli"
    trainer = Trainer(random_graph(train=31), TrainConfig.from_dict({**TINY, **settings}))
    decays, step = [], trainer.learner.optimizer.step

    def watch():
        decays.append(trainer.learner.optimizer.param_groups[0]["weight_decay"])
        step()

    trainer.learner.optimizer.step = watch
    trainer.epoch(1)
    assert decays == pytest.approx([0.25 * 30 / 31, 0.25 / 31])


@twins
@models
@pytest.mark.parametrize("which", ["entity", "relation"])
def test_vectors_of_zeros(twin, name, which):
    model = new_model(name, 6, 2, 9, 2)
    with torch.no_grad():
        getattr(model, which)[1] = 0
    twin_model, learning = copy.deepcopy(model), Learning("margin", 5.0, 0.01, 0.0)
    learner = Kernels().learner(model, learning)
    fast = new_kernels(twin).learner(twin_model, learning)
    for _ in range(2):
        for kernels_learner in (learner, fast):
            kernels_learner.step(*triples((0, 0, 1, 2, 1), (3, 1, 4, 3, 5)), new_sums())
    for key, table in parameters(model).items():
        # Gradients of 1e24, as here, do not fit the whole numbers that Triton's sums are kept in.
        wild = (twin, name, which) == ("triton", "TransD", "entity")
        # How far what is turned lies from zero does not depend on the angle: rounding decides.
        wild |= (name, which) == ("RotatE", "entity")
        expected = table if not wild else parameters(twin_model)[key].clamp(-10, 10)
        torch.testing.assert_close(parameters(twin_model)[key], expected, rtol=0, atol=1e-4)


@twins
@models
def test_parameters_changed_from_outside(twin, name):
    steps = random_steps(new_model(name, 9, 2, 9), [4, 4, 4])
    models = [new_model(name, 9, 2, 9, 2) for _ in range(2)]
    learning = Learning("logistic", 5.0, 0.01, 0.0)
    learners = [
        kernels.learner(model, learning)
        for kernels, model in zip((Kernels(), new_kernels(twin)), models, strict=True)
    ]
    found = []
    for model, learner in zip(models, learners, strict=True):
        sums = new_sums()
        learner.step(*steps[0], sums)
        model.load_state_dict(new_model(name, 9, 2, 9, 2, seed=5).state_dict())
        learner.reload()
        for step in steps[1:]:
            learner.step(*step, sums)
        found.append(sums)
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("twin", "name"),
    [(twin, name) for twin in TWINS for name in COMPILED if twin == "numba" or name not in QUERIED],
)
def test_reload_rebuilds_the_rows_that_kernels_score_by(twin, name):
    model = new_model(name, 9, 2, 9, 2)
    learner = new_kernels(twin).learner(model, Learning("logistic", 5.0, 0.01, 0.0))
    learner.step(*random_steps(model, [4])[0], new_sums())
    model.load_state_dict(new_model(name, 9, 2, 9, 2, seed=5).state_dict())
    learner.reload()
    entity, relation = torch.arange(9), torch.arange(2)
    expected = {"rows": model.table(), "relations": model.relation_rows(relation)}
    if model.form is Form.SHIFTED:
        expected["directions"] = model.direction(relation)
    if (shift := model.entity_shift(entity)) is not None:
        expected["shift"] = shift
    for part, wanted in expected.items():
        found = torch.as_tensor(getattr(learner, part)).cpu()
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-6, atol=1e-6, msg=part)
    anchor, asked = entity[[3, 8, 3]], relation[[0, 1, 1]]
    for side in Side if twin == "numba" else ():  # on GPUs a query is made where it is needed
        query = torch.from_numpy(learner.query(side, anchor, asked))
        torch.testing.assert_close(query, model.query(side, anchor, asked).detach())


@paths
@models
def test_a_learner_goes_on_from_a_checkpoint(path, name):
    learning = Learning("margin", 5.0, 0.01, 0.003, rows=name == "TransH")
    steps = list(random_steps(new_model(name, 9, 2, 9), [2, 2, 2]))
    whole, before, after = (new_model(name, 9, 2, 9, 2) for _ in range(3))
    learner = new_kernels(path).learner(whole, learning)
    for step in steps:
        learner.step(*step, new_sums())
    learner = new_kernels(path).learner(before, learning)
    for step in steps[:2]:
        learner.step(*step, new_sums())
    state = copy.deepcopy(learner.checkpoint())
    after.load_state_dict(before.state_dict())
    learner = new_kernels(path).learner(after, learning)
    learner.restore(state)
    for step in steps[2:]:
        learner.step(*step, new_sums())
    for key, table in parameters(whole).items():
        assert torch.equal(table, parameters(after)[key]), key


def momenta(learner):
    learner = learner_of(learner)
    if isinstance(learner, AutogradLearner):
        states = learner.optimizer.state.values()
        return [state[part].clone() for state in states for part in ("exp_avg", "exp_avg_sq")]
    return [
        torch.as_tensor(part).clone()
        for parts in (learner.means, learner.squares)
        for part in parts.values()
    ]


@paths
@models
def test_rows_without_a_gradient_wait(path, name):
    model = new_model(name, 6, 3, 9)
    learner = new_kernels(path).learner(model, Learning("logistic", 0.0, 0.01, 0.01, rows=True))
    learner.step(*triples((0, 0, 1, 2, 1), (3, 1, 4, 3, 0)), new_sums())  # all but 5 and r2
    assert all((part != 0).any(1).sum() in (2, 5) for part in momenta(learner))
    before, waiting = parameters(model), momenta(learner)
    learner.step(*triples((0, 0, 1, 0, 2)), new_sums())
    after = [*parameters(model).values(), *momenta(learner)]
    for old, new in zip([*before.values(), *waiting], after, strict=True):
        moved = (old != new).any(1).nonzero().flatten().tolist()
        assert moved == ([0, 1, 2] if len(old) == 6 else [0])


@paths
def test_each_table_has_its_own_rows(path):
    # Without a direction to shift in, the shift has no gradient, and its table has none.
    model = new_model("TransD", 6, 3, 9)
    torch.nn.init.zeros_(model.relation_projection)
    before = parameters(model)
    learner = new_kernels(path).learner(model, Learning("logistic", 0.0, 0.01, 0.01, rows=True))
    learner.step(*triples((0, 0, 1, 0, 2)), new_sums())
    after = parameters(model)
    assert torch.equal(before["entity_projection"], after["entity_projection"])
    assert (before["entity"] != after["entity"]).any(1).tolist() == [True] * 3 + [False] * 3


@paths
@models
def test_adam_goes_on_moving_rows_without_a_gradient(path, name):
    found = []
    for rows in (False, True):
        model = new_model(name, 6, 3, 9)
        learner = new_kernels(path).learner(model, Learning("logistic", 0.0, 0.01, 0.0, rows))
        learner.step(*triples((0, 0, 1, 2, 1), (3, 1, 4, 3, 0)), new_sums())
        before = parameters(model)["entity"]
        learner.step(*triples((0, 0, 1, 0, 2)), new_sums())
        found.append((before != parameters(model)["entity"]).any(1).nonzero().flatten().tolist())
    assert found == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_where_torch_makes_the_queries():
    model, learning = new_model("TransD"), Learning("margin", 4.0, 0.01, 0.0)
    assert type(new_kernels("numba").learner(model, learning)) is NumbaLearner
    for name in COMPILED:
        if name not in ("TransH", "TransD"):
            learner = new_kernels("numba").learner(new_model(name), learning)
            assert isinstance(learner, NumbaQueries)
            assert (learner.kind == GIVEN) == (name in QUERIED)
    for other in ("TransR", "TranSparse", "ManifoldE"):
        learner = new_kernels("numba").learner(new_model(other), learning)
        assert isinstance(learner, AutogradLearner)
    wide = new_kernels("numba").learner(new_model("RESCAL", dim=91), learning)
    assert isinstance(wide, AutogradLearner)


@pytest.mark.parametrize("name", QUERIED)
def test_threads_of_torch_do_not_change_a_step(name, monkeypatch):
    monkeypatch.setattr(LITTLE, 0)
    found = []
    for count in (1, 2, 3):
        model = new_model(name, 31, 3, 50)
        with threads(count):
            learner = new_kernels("numba").learner(model, Learning("margin", 5.0, 0.01, 0.003))
            sums = new_sums()
            for batch, negatives in random_steps(model, [700, 7, 700]):
                learner.step(batch, negatives, sums)
            assert torch.get_num_threads() == count
        found.append([*parameters(model).values(), sums])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@fast_twins  # an interpreter has one thread
@models
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("objective", ["margin", "shifted"])  # of one negative and, in form, many
def test_threads_do_not_change_a_step(twin, name, rows, objective, monkeypatch):
    monkeypatch.setattr(LITTLE, 0)
    found = []
    for count in (1, 2):
        model = new_model(name, 31, 3, 20)
        with threads(count):
            kernels = new_kernels(twin)
        learner = kernels.learner(model, Learning(objective, 5.0, 0.01, 0.003, rows))
        sums = new_sums()
        for batch, negatives in random_steps(model, [41, 7, 60]):
            learner.step(batch, negatives, sums)
        found.append([*parameters(model).values(), sums])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def elsewhere(array, random):
    """Copy an array to some place in memory; those of one row may lie side by side."""
    skip = 4 * int(random.integers(0, 48))
    room = np.empty(array.nbytes + skip, np.uint8)[skip:]
    copy = room.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@models
@pytest.mark.parametrize("dim", [3, 9, 20, 33, 64])
def test_where_arrays_lie_does_not_change_a_step(name, dim):
    random, found = np.random.default_rng(dim), []
    for _ in range(8):
        model = new_model(name, 31, 3, dim, 2)
        learner = new_kernels("numba").learner(model, Learning("margin", 5.0, 0.01, 0.0))
        learner._make_room(60, 3 * 60, 3 * 60)
        for array in ("g_entity", "g_shift", "g_relation", "g_direction"):
            setattr(learner, array, elsewhere(getattr(learner, array), random))
        taken = [np.empty(random.integers(1, 2000), np.uint8) for _ in range(20)]
        sums = new_sums()
        for batch, negatives in random_steps(model, [41, 1, 60]):
            learner.step(batch, negatives, sums)
            taken.pop()
        found.append([*parameters(model).values(), sums])
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))


@models
@pytest.mark.parametrize("dim", [3, 20, 33])
def test_where_arrays_lie_does_not_change_a_step_of_many(name, dim):
    random, found = np.random.default_rng(dim), []
    given = torch.Generator().manual_seed(dim)
    batch = plain_batch(*(torch.randint(below, (40,), generator=given) for below in (31, 3, 31)))
    entity = torch.randint(31, (40, 6), generator=given)
    drawn = batch.corrupt(torch.arange(40) % 2 == 0, entity, entity)
    for _ in range(8):
        model = new_model(name, 31, 3, dim, 2)
        learner = new_kernels("numba").learner(model, Learning("shifted", 5.0, 0.01, 0.0))
        learner._make_room(40, 40 * 8, 31)
        for array in ("g_entity", "g_shift", "g_relation", "g_direction"):
            setattr(learner, array, elsewhere(getattr(learner, array), random))
        taken = [np.empty(random.integers(1, 2000), np.uint8) for _ in range(20)]
        sums = new_sums()
        for _ in range(3):
            learner.step(batch, drawn, sums)
            taken.pop()
        found.append([*parameters(model).values(), sums])
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))


def test_random_steps_hold_what_they_promise():
    model = new_model("DistMult", 9, 3)
    for batch, negatives in random_steps(model, [200], untouched=2):
        columns = (batch.head, batch.relation, batch.tail)
        positive = torch.stack(columns, dim=1)
        false = torch.stack([negatives.head[:, 0], batch.relation, negatives.tail[:, 0]], dim=1)
        changed = (positive != false).numpy()
        assert changed[:, 0].any()
        assert changed[:, 2].any()
        assert not (changed[:, 0] & changed[:, 2]).any()
        assert (~changed.any(1)).any()
        assert (batch.head == batch.tail).any()
        assert len(np.unique(positive, axis=0)) < 200
        assert max(positive[:, [0, 2]].max(), false[:, [0, 2]].max()) == 6


STEPS_OF_TRANSH = """
import hashlib, torch
from nscaching.kernels import Learning, choose_kernels
from nscaching.kernels.batch import Batch, Negatives
from nscaching.models.translational import TransH

torch.manual_seed(0)
model = TransH(200, 5, 50)
model.reset()
kernels = choose_kernels("numba", torch.device("cpu"))
learner = kernels.learner(model, Learning("margin", 5.0, 0.01, 0.0))
for _ in range(10):
    head, tail, other = torch.randint(200, (3, 64))
    batch = Batch(head, torch.randint(5, (64,)), tail, head, tail)
    negatives = Negatives(other.unsqueeze(1), tail.unsqueeze(1))
    learner.step(batch, negatives, torch.zeros(4, dtype=torch.float64))
tables = b"".join(table.detach().numpy().tobytes() for table in model.parameters())
print(hashlib.sha256(tables).hexdigest())
"""


def test_code_from_numbas_cache_gives_the_same_bits_as_code_compiled_now(tmp_path):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", STEPS_OF_TRANSH]
    compiled, loaded = (
        subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbc"))
    assert compiled.stdout == loaded.stdout
