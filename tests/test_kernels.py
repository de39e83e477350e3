"""Draws, which path runs, and whole runs, of models of a user's own too."""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from helpers import (
    SLOW,
    TINY,
    TWINS,
    WAYS,
    batch_of,
    for_twins,
    goodness,
    model_for,
    new_kernels,
    new_model,
    random_graph,
    twins,
)
from nscaching import TrainConfig, UserError
from nscaching.data.index import Side
from nscaching.kernels import Kernels, Learning, choose_kernels, random
from nscaching.kernels.batch import Negatives
from nscaching.kernels.codes import KINDS
from nscaching.kernels.cpu.kernels import NumbaKernels
from nscaching.models import MODELS, Form, Model
from nscaching.models.translational import TransE
from nscaching.samplers.cached import NSCaching
from nscaching.training.trainer import Trainer


@for_twins(60, seed=st.integers(0, 10**6), tick=st.integers(0, 10**9), size=st.integers(1, 40))
def test_draws_agree(twin, seed, tick, size):
    graph = random_graph()
    batch = batch_of(graph, np.random.default_rng(seed).integers(len(graph.train), size=size))
    chance = torch.linspace(0.2, 0.8, len(graph.relations))
    keys = [len(graph.train_index[side]) for side in Side]
    ids = [torch.randint(12, (count, 5), dtype=torch.int32) for count in keys]
    for caches in ([], ids):
        asked = (batch, chance, 12, seed, torch.tensor(tick), caches)
        for count in (1, 3):
            one, other = (kernels.draw(*asked, count) for kernels in (Kernels(), new_kernels(twin)))
            assert one.head.shape == one.tail.shape == (size, count)
            assert torch.equal(one.replace_head, other.replace_head)
            assert torch.equal(one.head, other.head)
            assert torch.equal(one.tail, other.tail)


@twins
def test_bits_agree(twin):
    kernels = Kernels(), new_kernels(twin)
    for purpose, seed, tick, rows, count in (
        (0, 1, 0, 1, 1), (7, 2**40, 2**40 + 3, 5, 1), (3, 1000, 17, 700, 3), (1, 5, 2, 1, 1025),
    ):  # fmt: skip
        one, other = (k.bits(purpose, seed, torch.tensor(tick), rows, count) for k in kernels)
        assert torch.equal(one, other)
        assert one.shape == (rows, count)


@twins
@pytest.mark.parametrize("name", ["TransE", "TransD", "ComplEx", "HolE"])
@pytest.mark.parametrize("count", [1, 3])
def test_rewards_agree(twin, name, count):
    graph, random = random_graph(), torch.Generator().manual_seed(2)
    model = model_for(graph, name, seed=4)
    batch = batch_of(graph, range(9))
    replace = torch.rand(9, generator=random) < 0.5
    entity = torch.randint(len(graph.entities), (9, count), generator=random)
    drawn = batch.corrupt(replace, entity, entity)
    kernels = new_kernels(twin)
    kernels.learner(model, Learning("margin", 4.0, 0.01, 0.0))
    found = kernels.reward(model, batch, drawn)
    assert not found.requires_grad
    torch.testing.assert_close(found, drawn.scores(model, batch).detach(), rtol=1e-4, atol=1e-5)


@for_twins(
    60,
    seed=st.integers(0, 10**6),
    count=st.sampled_from([1, 2, 3, 5, 9, 24, 25, 700]),
    passes=st.sampled_from([0, 1, 2**33]),
    size=st.integers(1, 300),
)
def test_the_next_triples_agree(twin, seed, count, passes, size):
    columns = torch.randint(2**31 - 1, (5, count), dtype=torch.int32)
    size = min(size, count)
    so_far = [torch.tensor(passes * count + count - size) for _ in range(2)]
    kernels = Kernels(), new_kernels(twin)
    for each in (size, 1):  # the end of a pass, and the beginning of another
        plain, found = (
            k.take(columns, seed, n, each) for k, n in zip(kernels, so_far, strict=True)
        )
        assert torch.equal(plain, found)
        assert torch.equal(found[1:], columns[:, found[0]].long())
    assert so_far[0] == so_far[1] == (passes + 1) * count + 1


# Of random orders: a p-value below this is one test in a million.
UNLIKELY = 1e-6


def orders(count, many, seed=0):
    """Return ``many`` random orders of 0 … count − 1 [many, count]."""
    start = random.stream(seed, torch.arange(many), random.ORDER).unsqueeze(1)
    return random.rotated(start, torch.arange(count).unsqueeze(0), count)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_all_orders_of_a_few_are_equally_likely(count):
    found = orders(count, 30_000)
    assert torch.equal(found.sort(1).values, torch.arange(count).expand(len(found), -1))
    seen = Counter(map(tuple, found.tolist()))
    every = math.factorial(count)
    assert goodness(seen, dict.fromkeys(permutations(range(count)), 1 / every)) > UNLIKELY


@pytest.mark.parametrize("count", [60, 101, 3_999])
def test_orders_of_many_are_random(count):
    """Any two places hold any two numbers; and so do the same place of two orders."""
    found = orders(count, 4000 if count < 1000 else 200, seed=count)
    assert torch.equal(found[:9].sort(1).values, torch.arange(count).expand(9, -1))
    parts, width = 6, random.grid_width(count)
    share = torch.bincount(torch.arange(count) * parts // count).double() / count
    for one, two in ((0, 1), (0, width), (width // 2, count - 1), (3, count // 2)):
        pairs = found[:, [one, two]] * parts // count
        seen = Counter(map(tuple, pairs.tolist()))
        same = (share * count - 1) / (count - 1)
        expected = {
            (a, b): float(share[a] * (same[b] if a == b else share[b] * count / (count - 1)))
            for a in range(parts)
            for b in range(parts)
        }
        assert goodness(seen, expected) > UNLIKELY
    # Of neighbours as of any two places: how far apart are the numbers there?
    apart = (found[:, 1:] - found[:, :-1]).abs().flatten()[::7]
    seen = Counter((apart * parts // count).tolist())
    far = torch.arange(1, count)
    chance = torch.bincount(far * parts // count, 2.0 * (count - far)) / (count * (count - 1.0))
    assert goodness(seen, dict(enumerate(chance.tolist()))) > UNLIKELY
    # Each pass has an order of its own: the same number at a place is rare, once in an order.
    again = (found[1:] == found[:-1]).sum(1).double()
    assert abs(again.mean() - 1) < 5 * again.std() / len(again) ** 0.5


def test_every_way_through_the_kernels_is_tested():
    def way(name):
        model = new_model(name)
        compiled = type(model).__name__ if type(model) in KINDS else ""
        weighed = model.weight_of(torch.tensor([0])) is not None
        return compiled, model.form, model.metric, model.unit_projection, weighed

    assert {way(name) for name in MODELS.names()} == {way(name) for name in WAYS}


# Which path runs.

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def nothing_interpreted(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def hide(monkeypatch, name):
    """Make a package look as if it were not installed."""
    monkeypatch.setitem(sys.modules, name, None)
    forget(monkeypatch)


def forget(monkeypatch):
    """Let the modules that import a compiler be imported anew."""
    for module in sorted(sys.modules, reverse=True):
        if module.startswith(("nscaching.kernels.cpu", "nscaching.kernels.gpu")):
            package, _, name = module.rpartition(".")
            monkeypatch.delattr(sys.modules[package], name, raising=False)
            monkeypatch.delitem(sys.modules, module)


def test_the_paths_on_a_cpu():
    chosen = {name: choose_kernels(name, CPU) for name in ("auto", "reference", "numba")}
    assert {name: type(kernels) for name, kernels in chosen.items()} == {
        "auto": NumbaKernels, "reference": Kernels, "numba": NumbaKernels
    }  # fmt: skip
    assert {name: kernels.name for name, kernels in chosen.items()} == {
        "auto": "numba", "reference": "reference", "numba": "numba"
    }  # fmt: skip
    assert chosen["auto"].reason == "the device is cpu"
    assert chosen["reference"].reason == chosen["numba"].reason == "asked for"
    assert type(choose_kernels("reference", CUDA)) is Kernels


@pytest.mark.usefixtures("nothing_interpreted")
@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("triton", CPU, "kernels triton does not run on the CPU; use auto, reference or numba"),
        ("numba", CUDA, "kernels numba does not run on a GPU; use auto, reference or triton"),
        ("fast", CPU, "kernels fast .*; use auto, reference or numba"),
    ],
)
def test_a_path_that_does_not_fit(name, device, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        choose_kernels(name, device)


@pytest.mark.parametrize(("fitting", "device"), [("numba", CPU), ("triton", CUDA)])
def test_what_is_not_installed(fitting, device, monkeypatch):
    hide(monkeypatch, fitting)
    chosen = choose_kernels("auto", device)
    assert type(chosen) is Kernels
    assert (chosen.name, chosen.reason) == (
        "reference",
        f"{fitting} is not installed (pip install {fitting})",
    )
    assert type(choose_kernels("reference", device)) is Kernels
    with pytest.raises(UserError, match=f"{fitting} is not installed.*pip install {fitting}"):
        choose_kernels(fitting, device)


def test_what_does_not_work(monkeypatch):
    broken = ImportError("Numba needs another NumPy\nthan this")

    def fail(*given):
        raise broken

    monkeypatch.setattr(NumbaKernels, "__init__", fail)
    reason = "numba does not work here: Numba needs another NumPy than this"
    chosen = choose_kernels("auto", CPU)
    assert (type(chosen), chosen.reason) == (Kernels, reason)
    with pytest.raises(UserError, match=f"^kernels numba: {reason}$"):
        choose_kernels("numba", CPU)


def test_the_twins_have_their_names():
    assert [new_kernels(name).name for name in ["reference", *TWINS]] == ["reference", *TWINS]


# Models of a user.


class Own(Model):
    """Two tables, as every model has."""

    family = "semantic"

    def __init__(self, entities, relations, dim, norm=1):
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, dim))
        self.relation = nn.Parameter(torch.empty(relations, dim))


class Turned(Own):
    """Σᵢ hᵢ·rᵢ·tᵢ₊₁, by its form."""

    form = Form.DOT

    def score(self, head, relation, tail):
        return (self.entity[head] * self.relation[relation] * self.entity[tail].roll(-1, -1)).sum(
            -1
        )

    def query(self, side, anchor, relation):
        if side is Side.TAIL:
            return (self.entity[anchor] * self.relation[relation]).roll(1, -1)
        return self.entity[anchor].roll(-1, -1) * self.relation[relation]


class Sheared(Own):
    """TransH whose normal is the translation, with vectors of any length."""

    family = "translational"
    form = Form.SHIFTED

    def direction(self, relation):
        return self.relation[relation]

    def score(self, head, relation, tail):
        h, r, t = self.entity[head], self.relation[relation], self.entity[tail]
        h, t = (e - (r * e).sum(-1, keepdim=True) * r for e in (h, t))
        return -self.length(h + r - t)

    def query(self, side, anchor, relation):
        e, r = self.entity[anchor], self.relation[relation]
        return e - (r * e).sum(-1, keepdim=True) * r + (r if side is Side.TAIL else -r)


class Formless(Own):
    """A model that only has a score."""

    def score(self, head, relation, tail):
        h, r, t = self.entity[head], self.relation[relation], self.entity[tail]
        return torch.tanh(h * r - t).sum(-1)


class Heavier(TransE):
    """A score of its own in a class that has a compiled twin."""

    form = None

    def score(self, head, relation, tail):
        return 2 * super().score(head, relation, tail)


def trained(model, path, like, **settings):
    """Train a little; return losses, caches and the MRR of the test triples.

    It is as little as the path has time for whose run this one is to be like.
    """
    graph = random_graph(entities=30, train=6 if like in SLOW else 80)
    if like == "triton" and torch.cuda.is_available():
        settings["device"] = "cuda"  # both: the caches start from draws of the device
    config = TrainConfig.from_dict({**TINY, "model": model, "kernels": path, **settings})
    trainer = Trainer(graph, config)
    assert trainer.kernels.name == path
    before = {side: ids.clone() for side, ids in trainer.sampler.cache.rows.items()}
    losses = [trainer.epoch(epoch)["loss"] for epoch in (1, 2)]
    assert all(
        not torch.equal(ids, before[side]) for side, ids in trainer.sampler.cache.rows.items()
    )
    cache = {side: ids.cpu() for side, ids in trainer.sampler.cache.rows.items()}
    return losses, cache, trainer.rank("test", 2)["mrr"]


def trains_alike(model, twin, **settings):
    """Check that a path comes to the same as the reference."""
    losses, cache, mrr = trained(model, "reference", twin, **settings)
    twin_losses, twin_cache, twin_mrr = trained(model, twin, twin, **settings)
    assert twin_losses == pytest.approx(losses, rel=1e-5)
    assert twin_mrr == pytest.approx(mrr)
    for side in Side:
        assert torch.equal(cache[side], twin_cache[side])


@twins
@pytest.mark.parametrize("candidates", ["set", "slots"])
@pytest.mark.parametrize("own", [Turned, Sheared, Formless, Heavier])
def test_a_model_of_a_user(twin, own, candidates):
    name = f"{__name__}:{own.__name__}"
    trains_alike(name, twin, candidates=candidates)


@twins
@pytest.mark.parametrize(
    ("model", "draw"),
    [(name, "importance") for name in ("TransE", "TransH", "TransD", "DistMult", "ComplEx")]
    + [("TransH", "top"), ("RotatE", "importance")],
)
def test_draws_by_score(twin, model, draw):
    # Adam's first steps are as long for gradients that are zero but for rounding: keep them short.
    settings = {"draw": draw, "lr": 1e-6}
    trains_alike(model, twin, **settings)


class Twice(NSCaching):
    """Two negatives of each triple."""

    one_side = False

    def negatives(self, batch, model):
        first, second = (super(Twice, self).negatives(batch, model) for _ in range(2))
        return Negatives(
            torch.cat([first.head, second.tail], 1), torch.cat([first.tail, second.head], 1)
        )


class BothSides(NSCaching):
    """Head and tail replaced at once."""

    one_side = False

    def negatives(self, batch, model):
        drawn = super().negatives(batch, model)
        return Negatives(drawn.tail, drawn.head)


@twins
@pytest.mark.parametrize("own", [Twice, BothSides])
@pytest.mark.parametrize("name", ["TransE", "ComplEx"])
def test_a_sampler_of_a_user(twin, own, name):
    settings = {"sampler": f"{__name__}:{own.__name__}", "norm": 2, "dim": 10}
    trains_alike(name, twin, **settings)


# What learns by autograd has one optimizer for all paths.
LEARNING = [(name, "adam") for name in WAYS] + [(kind.__name__, "row-adam") for kind in KINDS]


@twins
@pytest.mark.parametrize(("name", "optimizer"), LEARNING)
def test_a_run_is_the_same_on_every_path(twin, name, optimizer):
    # In L1 and few dimensions gradients cancel, and Adam makes whole steps of rounding.
    settings = {"optimizer": optimizer, "norm": 2, "dim": 10}
    trains_alike(name, twin, **settings)


# An interpreter goes through everything in order: of it, the kernels with the most memory to start.
@pytest.mark.parametrize(
    ("twin", "name"),
    [
        (twin, name)
        for twin in TWINS
        for name in (["TransD"] if twin in SLOW else ["TransE", "TransD", "ComplEx", "RotatE"])
    ],
)
def test_the_same_seed_gives_the_same_run_bit_for_bit(twin, name):
    first, second = (trained(name, twin, twin, dim=32) for _ in range(2))
    assert first[0] == second[0]
    assert first[2] == second[2]
    assert all(torch.equal(first[1][side], second[1][side]) for side in Side)
