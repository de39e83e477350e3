"""The cached softmax: its estimate, its cache, its tail, and what goes with it."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

from helpers import (
    CPU,
    FIXED,
    TINY,
    all_triples,
    batch_of,
    chances,
    fixed_model,
    goodness,
    graph_of,
    new_model,
    new_sampler,
    random_graph,
    repeated_graph,
)
from nscaching import KnowledgeGraph, ProbeConfig, Run, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import Kernels, KVsAll, Learning, OneVsAll, Rivals
from nscaching.kernels.learner import cubes
from nscaching.kernels.nearby import Nearby
from nscaching.kernels.softmax import SoftmaxLearner
from nscaching.models import MODELS, Model, plain_distances
from nscaching.models.bilinear import Bilinear
from nscaching.runs.export import load_vectors
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=40, train=90, valid=20, test=20)
FEW = random_graph(entities=7, relations=2, train=30)
SOFTMAX = {**TINY, "objective": "softmax"}
BILINEAR = [name for name in MODELS.names() if issubclass(MODELS.get(name), Bilinear)]

models = pytest.mark.parametrize("name", MODELS.names())
both = pytest.mark.parametrize("reciprocal", [False, True])


def model_of(name, graph, reciprocal=False, **options) -> Model:
    relations = len(graph.relations) * (2 if reciprocal else 1)
    model = new_model(name, len(graph.entities), relations, **options).double()
    model.reciprocal = reciprocal
    return model


def new_learner(model, scale=1.0, relation_weight=0.0, kind=SoftmaxLearner, objective="softmax"):
    how = Learning(objective, 0.0, 0.1, 0.0, scale=scale, relation_weight=relation_weight)
    return kind(model, how, plain_distances)


def slow_score(model, side, h, r, t, entity):
    """Score one answer to the query of a triple, by single triples."""
    if side is Side.TAIL:
        triple = h, r, entity
    elif model.reciprocal:
        triple = t, r + model.relations // 2, entity
    else:
        triple = entity, r, t
    return model.score(*map(torch.tensor, triple))


def slow_loss(model, triple, cached, tail, scale=1.0):
    """Return the loss of a triple by its definition; ``cached`` has the entities of each side."""
    h, r, t = triple
    total = 0.0
    for side in Side:
        answer = h if side is Side.HEAD else t

        def power(entity, side=side):
            return (scale * slow_score(model, side, h, r, t, entity)).exp()

        sum_of_all = power(answer)
        for entity in cached[side]:
            if entity != answer:
                sum_of_all = sum_of_all + power(entity)
        for entity in tail:
            if entity not in cached[side] and entity != answer:
                sum_of_all = sum_of_all + model.entities / len(tail) * power(entity)
        total = total - (power(answer) / sum_of_all).log()
    return total


def assert_same_learning(model, loss, expected):
    torch.testing.assert_close(loss, expected)
    totals, tables = (loss.sum(), expected.sum()), list(model.parameters())
    got, wanted = (torch.autograd.grad(total, tables, allow_unused=True) for total in totals)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def compared(sampler, batch, model, tail=None):
    """Return what a step compares a batch with; with a tail, that one."""
    rivals = sampler.sample(batch, model)
    return rivals if tail is None else dataclasses.replace(rivals, tail=torch.tensor(tail))


def heads_of(rivals, batch, side):
    """Return the different entities of the head of each triple: cached, and near in the graph."""
    cached = rivals.cached(side)
    near = rivals.near(side, side.query(batch.head, batch.tail)[0], cached)
    return [set(row) for row in torch.cat([cached, near], 1).tolist()]


# The loss.


@pytest.mark.parametrize("near", [0, 5])
@both
@models
def test_the_loss_is_its_formula(name, reciprocal, near):
    model = model_of(name, GRAPH, reciprocal)
    sampler = new_sampler(GRAPH, objective="softmax", n1=6, near=near, tail=15)
    batch = batch_of(GRAPH, [0, 7, 7, 12])
    rivals = compared(sampler, batch, model)
    rows = [{s: heads_of(rivals, batch, s)[i] for s in Side} for i in range(4)]
    rows[2] = rows[1]
    triples = GRAPH.train[[0, 7, 7, 12]].tolist()
    tail = rivals.tail.tolist()
    expected = [slow_loss(model, *each, tail, 0.7) for each in zip(triples, rows, strict=True)]
    loss, _ = new_learner(model, scale=0.7).loss(batch, rivals)
    assert_same_learning(model, loss, torch.stack(expected))


WHOLE = {"cache": (7, 3), "tail": (0, 7), "tail and some cached": (3, 9)}


@both
@pytest.mark.parametrize("whole", WHOLE)
@models
def test_with_every_entity_it_is_1vsall(name, whole, reciprocal):
    model = model_of(name, FEW, reciprocal)
    n1, tail = WHOLE[whole]
    sampler = new_sampler(FEW, objective="softmax", n1=n1, near=4, tail=tail)
    batch = batch_of(FEW)
    loss, _ = new_learner(model, 1.5).loss(batch, compared(sampler, batch, model))
    every = new_learner(model, 1.5, kind=OneVsAll, objective="1vsall")
    assert_same_learning(model, loss, every.loss(batch, None)[0])


# The estimate of the partition function, over all tails of K among seven entities.


def tails(size):
    return itertools.combinations(range(7), size)


def losses_of(model, size, cached=None, side=Side.TAIL, near=0):
    """Return the losses [tails, B] of one side with every tail; ``cached`` is each query's row."""
    batch, learner = batch_of(FEW), new_learner(model)
    cache = nearby = None
    if cached is not None:
        sampler = new_sampler(FEW, objective="softmax", n1=cached.shape[1], near=near)
        sampler.cache.rows[side][batch.key(side)] = cached.int()
        cache, nearby = sampler.cache.access(batch, model), sampler.nearby
    rivals = [
        Rivals(torch.tensor(tail), 7, cache, nearby, refreshing=False) for tail in tails(size)
    ]
    return torch.stack([learner.loss_of(side, batch, each) for each in rivals])


def exact(model, side=Side.TAIL):
    """Return the scores [B, |E|] of all answers and those of the true ones [B]."""
    batch = batch_of(FEW)
    anchor, answer = side.query(batch.head, batch.tail)
    scores = model.score_all(side, anchor, batch.relation)
    return scores, scores.gather(1, answer.unsqueeze(1)).squeeze(1)


def cached_rows(model, how, side=Side.TAIL):
    """Return three entities for each training triple: the same for all triples of a key."""
    if how == "none":
        return None
    batch = batch_of(FEW)
    if how == "random":
        random = torch.rand(60, 7, generator=torch.Generator().manual_seed(1))
        rows = random[batch.key(side)].argsort(1)[:, :3]
    else:
        rows = exact(model, side)[0].argsort(1, descending=how == "best")[:, :3]
    return rows.sort(1).values


@torch.no_grad()
@pytest.mark.parametrize("near", [0, 2])
@pytest.mark.parametrize("how", ["none", "random", "best", "worst"])
@pytest.mark.parametrize("side", Side)
def test_the_sum_is_unbiased(side, how, near):
    model = model_of("DistMult", FEW)
    rows = cached_rows(model, how, side)
    scores, true = exact(model, side)
    if how == "random":
        batch = batch_of(FEW)
        inside = (rows == side.query(batch.head, batch.tail)[1].unsqueeze(1)).any(1)
        assert inside.any()
        assert not inside.all()
    for size in (1, 3, 6):
        found = (losses_of(model, size, rows, side, near) + true).exp()
        torch.testing.assert_close(found.mean(0), scores.exp().sum(1))
        assert (found.std(0) > 0).all()


def variances(model, size, rows):
    """Return the variance [B] of the estimate: sampling of K among 7 without replacement."""
    batch = batch_of(FEW)
    counts = exact(model)[0].exp()
    counts = counts.scatter(1, batch.tail.unsqueeze(1), 0)
    counts = counts if rows is None else counts.scatter(1, rows, 0)
    return 7**2 / size * (1 - size / 7) * counts.var(1)


@torch.no_grad()
@pytest.mark.parametrize("how", ["none", "best"])
def test_the_bias_of_the_loss_is_that_of_the_second_order(how):
    """It is −var / 2Z², and var falls as 1/K − 1/|E|; by Jensen's inequality it is negative."""
    model = model_of("DistMult", FEW, dim=2)
    model.relation *= 0.05
    rows = cached_rows(model, how)
    scores, true = exact(model)
    bias = {}
    for size in range(1, 8):
        losses = losses_of(model, size, rows)
        sums = (losses + true).exp()
        torch.testing.assert_close(sums.var(0, correction=0), variances(model, size, rows))
        bias[size] = (losses + true).mean(0) - scores.logsumexp(1)
    assert all((bias[size] < 0).all() for size in range(1, 7))
    assert bias[7].abs().max() < 1e-12
    for size in (3, 4, 5, 6):
        second = -variances(model, size, rows) / (2 * scores.exp().sum(1) ** 2)
        torch.testing.assert_close(bias[size], second, rtol=0.1, atol=0)


def test_the_bias_of_the_gradient_falls_alike():
    model = model_of("DistMult", FEW, dim=2)
    with torch.no_grad():
        model.relation *= 0.05
    every = new_learner(model, kind=OneVsAll).loss_of(Side.TAIL, batch_of(FEW), None).sum()
    (wanted,) = torch.autograd.grad(every, model.entity)
    size_of = {}
    for size in range(1, 8):
        loss = losses_of(model, size).mean(0).sum()
        size_of[size] = (torch.autograd.grad(loss, model.entity)[0] - wanted).norm()
    assert all(size_of[size + 1] < size_of[size] for size in range(1, 7))
    assert size_of[7] < 1e-12
    assert size_of[3] / size_of[6] == pytest.approx((1 / 3 - 1 / 7) / (1 / 6 - 1 / 7), rel=0.1)


@torch.no_grad()
def test_a_head_of_the_largest_lowers_the_variance():
    model = model_of("DistMult", FEW)
    scores, true = exact(model)
    spread = {}
    for how in ("none", "best"):
        sums = (losses_of(model, 3, cached_rows(model, how)) + true).exp()
        spread[how] = (sums / scores.exp().sum(1, keepdim=True).T).var(0)
    assert (spread["best"] < spread["none"]).all()
    assert spread["best"].mean() < 0.1 * spread["none"].mean()


# Walks through the graph.


def test_walks_end_next_to_the_anchor_or_two_steps_away():
    """And each triple of an entity is as likely as any other."""
    triples = {(0, 0, 1), (0, 1, 1), (2, 0, 0), (1, 0, 3), (4, 1, 4), (5, 0, 5)}
    graph = KnowledgeGraph.from_arrays(
        [*"abcdef"], ["r", "s"], {"train": np.array(sorted(triples), np.int32)}
    )
    nearby = Nearby.of(graph.train_index, 6, 60_000, CPU)
    anchor = torch.tensor([0, 3, 4])
    ends = nearby.walk(torch.tensor(5), anchor, torch.tensor([3, 1, 9]))
    one, two = ends[:, 0::2].tolist(), ends[:, 1::2].tolist()
    assert goodness(Counter(one[0]), {1: 2 / 3, 2: 1 / 3}) > 0.001
    assert goodness(Counter(two[0]), {0: 2 / 3 * 2 / 3 + 1 / 3, 3: 2 / 3 * 1 / 3}) > 0.001
    assert set(one[1]) == {1}
    assert goodness(Counter(two[1]), {0: 2 / 3, 3: 1 / 3}) > 0.001
    assert set(one[2]) | set(two[2]) == {4}
    again = nearby.walk(torch.tensor(5), anchor.flip(0), torch.tensor([9, 1, 3]))
    assert torch.equal(again.flip(0), ends)


def test_what_is_near_is_new_in_the_head_and_can_be_cached():
    model = model_of("DistMult", GRAPH)
    sampler = new_sampler(GRAPH, objective="softmax", n1=3, near=8, tail=1, refresh="top")
    batch, entered = batch_of(GRAPH), 0
    for _ in range(3):
        rivals = sampler.sample(batch, model)
        before = {side: heads_of(rivals, batch, side) for side in Side}
        cached = {side: rivals.cached(side).clone() for side in Side}
        for side in Side:
            near = rivals.near(side, side.query(batch.head, batch.tail)[0], cached[side])
            rest = [row[row != first] for row, first in zip(near, cached[side][:, 0], strict=True)]
            heads = [len(c) + len(r) for c, r in zip(cached[side], rest, strict=True)]
            assert heads == [len(head) for head in before[side]]
        new_learner(model).loss(batch, rivals)
        for side in Side:
            for row, old, head in zip(
                rivals.cached(side).tolist(), cached[side].tolist(), before[side], strict=True
            ):
                assert set(row) <= head | set(rivals.tail.tolist())
                assert len(set(row)) == 3
                entered += len(set(row) & (head - set(old)))
    assert entered > 50


# The tail.


def many_tails(entities, count, ticks, seed=0):
    return torch.vmap(lambda tick: Kernels().tail(entities, count, seed, tick))(ticks)


@pytest.mark.parametrize("entities", [6, 7, 20, 1000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_tails_of_a_turn_are_apart(entities, count):
    parts = entities // count
    for seed, turn in itertools.product((0, 1, 77), (0, 1, 12345)):
        found = many_tails(entities, count, turn * parts + torch.arange(parts), seed)
        assert found.shape == (parts, count)
        assert len(found.unique()) == parts * count
        assert found.min() >= 0
        assert found.max() < entities


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("seed", [0, 5])
def test_every_tail_is_equally_likely(part, seed):
    found = many_tails(7, 3, 2 * torch.arange(20_000) + part, seed).tolist()
    expected = dict.fromkeys(itertools.combinations(range(7), 3), 1 / 35)
    assert goodness(Counter(tuple(sorted(tail)) for tail in found), expected) > 0.001


@pytest.mark.parametrize("entities", [12, 13])
def test_every_pair_is_equally_likely(entities):
    pairs = list(itertools.permutations(range(entities), 2))
    found = many_tails(entities, 4, (entities // 4) * torch.arange(30_000))
    for first, second in ((0, 1), (1, 3)):
        seen = Counter(zip(found[:, first].tolist(), found[:, second].tolist(), strict=True))
        assert goodness(seen, dict.fromkeys(pairs, 1 / len(pairs))) > 0.001


def test_every_seed_has_its_tails():
    """Those of seeds next to each other have nothing in common."""
    first = [int(Kernels().tail(5, 2, seed, torch.tensor(1))[0]) for seed in range(300)]
    pairs = dict.fromkeys(itertools.product(range(5), repeat=2), 1 / 25)
    assert goodness(Counter(itertools.pairwise(first)), pairs) > 0.001


def test_a_tail_is_a_function_of_seed_and_tick():
    def tail(seed, tick):
        return Kernels().tail(1000, 30, seed, torch.tensor(tick)).tolist()

    before = torch.get_rng_state()
    first = tail(3, 40)
    torch.rand(5)
    assert tail(3, 40) == first
    torch.set_rng_state(before)
    assert tail(3, 40) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert tail(4, 40) != first
    assert tail(3, 40 + 1000 // 30) != first  # the same part of the next turn


@pytest.mark.parametrize("count", [9, 10, 1000])
def test_a_large_tail_is_every_entity(count):
    assert Kernels().tail(9, count, 0, torch.tensor(5)).tolist() == list(range(9))


@pytest.mark.parametrize("sampler", ["nscaching", "bernoulli", "uniform"])
def test_steps_have_different_tails(sampler):
    made = new_sampler(GRAPH, objective="softmax", sampler=sampler, tail=10)
    batch, model = batch_of(GRAPH), model_of("TransE", GRAPH)
    found = [made.sample(batch, model) for _ in range(3)]
    assert len(torch.cat([rivals.tail for rivals in found]).unique()) >= 20
    assert all(rivals.weight == 4 for rivals in found)
    assert all((rivals.cache is None) == (sampler != "nscaching") for rivals in found)


# The cache.


def rows_of(sampler):
    return {side: ids.clone() for side, ids in sampler.cache.rows.items()}


def test_cached_rows_ascend_from_the_start():
    sampler = new_sampler(GRAPH, objective="softmax", n1=6)
    for rows in rows_of(sampler).values():
        for row in rows.tolist():
            assert row == sorted(set(row))


@both
def test_the_best_of_cache_and_tail_are_kept(reciprocal):
    model = model_of("DistMult", GRAPH, reciprocal)
    sampler = new_sampler(GRAPH, objective="softmax", refresh="top", n1=5, tail=12)
    batch = batch_of(GRAPH, range(60))
    assert any(len(batch.key(side).unique()) < 60 for side in Side)
    learner = new_learner(model, scale=0.3)
    for _ in range(3):
        before = rows_of(sampler)
        rivals = compared(sampler, batch, model)
        assert all(torch.equal(before[side], sampler.cache.rows[side]) for side in Side)
        learner.loss(batch, rivals)
        for side in Side:
            expected = before[side].clone()
            for key, triple in zip(batch.key(side), GRAPH.train[:60].tolist(), strict=True):
                pool = {*before[side][key].tolist(), *rivals.tail.tolist()}
                score = {e: slow_score(model, side, *triple, e).item() for e in pool}
                best = sorted(pool, key=score.get)[-5:]
                expected[key] = torch.tensor(sorted(best), dtype=torch.int32)
            assert torch.equal(sampler.cache.rows[side], expected)
            assert not torch.equal(expected, before[side])


@pytest.mark.parametrize("tail", [[2, 3], [1, 4], [3, 1, 4]])
@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (2.0, 1.0), (1.0, 0.5)])
def test_importance_keeps_by_softmax_without_replacement(tail, temperature, scale):
    graph = repeated_graph()
    model, batch = fixed_model(graph), batch_of(graph)
    options = {"refresh": "importance", "temperature": temperature, "n1": 2}
    sampler = new_sampler(graph, objective="softmax", **options)
    for side in Side:
        sampler.cache.rows[side][:] = torch.tensor([0, 1])
    new_learner(model, scale).loss(batch, compared(sampler, batch, model, tail))
    pool, expected = sorted({0, 1, *tail}), Counter()
    scores = [scale * FIXED[entity].item() for entity in pool]
    for order, chance in chances(scores, 2, temperature).items():
        expected[tuple(sorted(pool[column] for column in order))] += chance
    for side in Side:
        kept = Counter(map(tuple, sampler.cache.rows[side][batch.key(side)].tolist()))
        assert goodness(kept, expected) > 0.001


def test_a_tail_that_is_cached_already_changes_nothing():
    model, batch = model_of("DistMult", GRAPH), batch_of(GRAPH)
    sampler = new_sampler(GRAPH, objective="softmax", n1=4)
    for rows in sampler.cache.rows.values():
        rows[:] = torch.tensor([3, 9, 20, 39])
    before = rows_of(sampler)
    new_learner(model).loss(batch, compared(sampler, batch, model, [39, 3]))
    assert all(torch.equal(before[side], sampler.cache.rows[side]) for side in Side)


def test_lazy_epochs_leave_the_cache_alone():
    model = model_of("DistMult", GRAPH)
    sampler = new_sampler(GRAPH, objective="softmax", lazy=1, tail=12)
    batch, learner = batch_of(GRAPH), new_learner(model)
    for epoch, changed in ((1, True), (2, False), (3, True)):
        sampler.begin_epoch(epoch)
        before = rows_of(sampler)
        learner.loss(batch, compared(sampler, batch, model))
        sampler.update(batch, model)
        for side in Side:
            assert torch.equal(before[side], sampler.cache.rows[side]) != changed


def test_the_cache_is_refreshed_once_a_step():
    """What follows a sample in a step may not refresh again, by other candidates."""
    model = model_of("DistMult", GRAPH)
    sampler = new_sampler(GRAPH, objective="softmax", tail=12)
    batch = batch_of(GRAPH)
    before = rows_of(sampler)
    sampler.sample(batch, model)
    sampler.update(batch, model)
    assert all(torch.equal(before[side], sampler.cache.rows[side]) for side in Side)


def test_without_a_cache():
    model, batch = model_of("DistMult", GRAPH), batch_of(GRAPH)
    sampler = new_sampler(GRAPH, objective="softmax", n1=0, tail=12)
    assert sampler.cache is None
    assert sampler.state() == {}
    rivals = compared(sampler, batch, model)
    assert rivals.cache is None
    plain = new_sampler(GRAPH, objective="softmax", sampler="uniform", tail=12)
    learner = new_learner(model)
    loss, other = (learner.loss(batch, each)[0] for each in (rivals, compared(plain, batch, model)))
    torch.testing.assert_close(loss, other, rtol=0, atol=0)


@pytest.mark.parametrize("settings", [{}, {"n1": 0}, {"draw": "importance"}])
def test_compiled_steps_get_all_threads(settings):
    config = {**SOFTMAX, "device": "cpu", "kernels": "numba", **settings}
    assert Trainer(GRAPH, TrainConfig.from_dict(config)).torch_threads == 1


# Reciprocal relations.


def slow_rank(model, graph, side, triple):
    known = all_triples(graph)
    scores = {
        entity: slow_score(model, side, *triple, entity).item()
        for entity in range(len(graph.entities))
        if ((entity, *triple[1:]) if side is Side.HEAD else (*triple[:2], entity)) not in known
    }
    answer = triple[0] if side is Side.HEAD else triple[2]
    true = slow_score(model, side, *triple, answer).item()
    return 1 + sum(score > true for score in scores.values())


@models
def test_heads_are_asked_by_the_inverse(name):
    """As the tails of a model with twice the relations."""
    model, twin = model_of(name, GRAPH, reciprocal=True), model_of(name, GRAPH, reciprocal=True)
    twin.reciprocal = False
    anchor, relation = torch.tensor([3, 9, 3, 39]), torch.tensor([0, 2, 1, 2])
    some, each = torch.tensor([5, 0, 39]), torch.arange(12).view(4, 3)
    count = len(GRAPH.relations)
    for side, shift in ((Side.HEAD, count), (Side.TAIL, 0)):
        asked = Side.TAIL, anchor, relation + shift
        for score, *rest in (("score_all",), ("score_shared", some), ("score_candidates", each)):
            got = getattr(model, score)(side, anchor, relation, *rest)
            torch.testing.assert_close(got, getattr(twin, score)(*asked, *rest))
    assert (model.own_relations, twin.own_relations) == (count, 2 * count)


@pytest.mark.parametrize("name", ["ComplEx", "TransE", "TransD", "RotatE", "ManifoldE", "TransR"])
def test_rankings_ask_by_the_inverse(name):
    model = model_of(name, GRAPH, reciprocal=True).float()
    ranks = rank(model, Queries(GRAPH, GRAPH.test))
    for side in Side:
        expected = [slow_rank(model, GRAPH, side, triple) for triple in GRAPH.test.tolist()]
        assert ranks[side].optimistic.tolist() == expected


@both
@pytest.mark.parametrize("name", ["ComplEx", "TransH"])
def test_kvsall_asks_by_the_inverse(name, reciprocal):
    model = model_of(name, FEW, reciprocal)
    learner = KVsAll(model, Learning("kvsall", 0.0, 0.1, 0.0), plain_distances, FEW.train_index)
    known, expected = all_triples(FEW, ["train"]), []
    for h, r, t in FEW.train[:5].tolist():
        loss = 0.0
        for side in Side:
            signs = [
                1.0 if ((e, r, t) if side is Side.HEAD else (h, r, e)) in known else -1.0
                for e in range(7)
            ]
            scores = torch.stack([slow_score(model, side, h, r, t, e) for e in range(7)])
            loss = loss - (torch.tensor(signs) * scores).sigmoid().log().sum() / signs.count(1.0)
        expected.append(loss)
    loss, _ = learner.loss(batch_of(FEW, range(5)), None)
    assert_same_learning(model, loss, torch.stack(expected))


def test_cubes_of_a_relation_and_its_inverse():
    model = model_of("DistMult", FEW, reciprocal=True)
    batch = batch_of(FEW, [0, 3, 3])
    entity, relation = model.entity.abs() ** 3, model.relation.abs() ** 3
    inverse = relation[batch.relation + 2]
    expected = entity[batch.head] + entity[batch.tail] + (relation[batch.relation] + inverse) / 2
    torch.testing.assert_close(cubes(model, batch.head, batch.relation, batch.tail), expected.sum())


def test_a_graph_with_its_inverses():
    graph = graph_of([(0, 0, 1), (0, 0, 2), (2, 1, 2)], [(1, 1, 2)], [(1, 1, 1)])
    twice = graph.with_inverses()
    assert twice.train[3:].tolist() == [[1, 2, 0], [2, 2, 0], [2, 3, 2]]
    assert twice.relations == ["r0", "r1", "r0⁻¹", "r1⁻¹"]
    assert (len(twice.valid), len(twice.test)) == (0, 0)
    tails, heads = twice.cardinality
    np.testing.assert_array_equal(tails[2:], heads[:2])
    np.testing.assert_array_equal(heads[2:], tails[:2])
    assert (len(graph.relations), len(graph.train)) == (2, 3)


def test_an_inverse_has_no_name_of_another_relation():
    names = ["a", "a⁻¹", "b"]
    graph = KnowledgeGraph.from_arrays(["x"], names, {"train": np.array([[0, 2, 0]])})
    assert graph.with_inverses().relations == [*names, "a⁻¹⁻¹", "a⁻¹⁻¹⁻¹", "b⁻¹⁻¹"]


@pytest.mark.parametrize("name", ["TransM", "TranSparse"])
def test_what_a_model_takes_of_the_triples_it_takes_of_inverses_too(name):
    config = TrainConfig.from_dict({**SOFTMAX, "model": name, "reciprocal": True})
    got = dict(Trainer(FEW, config).model.named_buffers())
    twin = MODELS.get(name)(7, 4, config.dim, config.norm)
    twin.prepare(FEW.with_inverses())
    wanted = dict(twin.named_buffers())
    assert got.keys() == wanted.keys() != set()
    for buffer in wanted:
        assert torch.equal(got[buffer], wanted[buffer])


# The second loss, over relations.


@both
@models
def test_the_loss_of_relations_is_its_formula(name, reciprocal):
    model = model_of(name, GRAPH, reciprocal)
    batch, rivals = batch_of(GRAPH, [0, 7, 12]), Rivals(torch.arange(40), 40)
    plain, weighed = (new_learner(model, 0.7, w).loss(batch, rivals)[0] for w in (0.0, 0.3))
    expected = []
    for h, r, t in GRAPH.train[[0, 7, 12]].tolist():

        def loss(head, tail, true):
            ids = torch.tensor(head), torch.arange(model.relations), torch.tensor(tail)
            return -log_softmax(0.7 * model.score(*ids), 0)[true]

        both_ways = [loss(h, t, r)] + ([loss(t, h, r + 3)] if reciprocal else [])
        expected.append(0.3 * sum(both_ways))
    assert_same_learning(model, weighed - plain, torch.stack(expected))
    every = [
        new_learner(model, 0.7, w, kind=OneVsAll, objective="1vsall").loss(batch, None)[0]
        for w in (0.0, 0.3)
    ]
    torch.testing.assert_close(every[1] - every[0], weighed - plain)


@pytest.mark.parametrize("name", BILINEAR)
def test_pairs_of_bilinear_models_score_relations(name):
    model = model_of(name, GRAPH)
    head, tail = torch.tensor([1, 5, 5]), torch.tensor([2, 5, 39])
    expected = Model.score_relations(model, head, tail)  # by ``score``
    torch.testing.assert_close(model.score_relations(head, tail), expected)


# Settings.


def test_a_scale_is_that_of_the_relations():
    """In a bilinear model."""
    model, twin = model_of("DistMult", GRAPH), model_of("DistMult", GRAPH)
    with torch.no_grad():
        twin.relation *= 2.5
    batch, rivals = batch_of(GRAPH), Rivals(torch.arange(0, 40, 3), 40)
    loss, other = (new_learner(*of).loss(batch, rivals)[0] for of in ((model, 2.5), (twin, 1.0)))
    torch.testing.assert_close(loss, other)


@pytest.mark.parametrize("settings", [{}, {"objective": "1vsall", "sampler": "none"}])
def test_a_training_has_scale_and_weight_of_its_configuration(settings):
    """By the loss of a first epoch that learns nothing."""
    options = {"model": "ComplEx", "tail": 40, "lr": 1e-12}
    config = TrainConfig.from_dict(SOFTMAX | options | settings)
    losses = {}
    for scale, weight in ((1.0, 0.0), (3.0, 0.0), (3.0, 0.5)):
        trainer = Trainer(GRAPH, config.changed(scale=scale, relation_weight=weight))
        every = new_learner(trainer.model, scale, weight, kind=OneVsAll, objective="1vsall")
        expected = every.loss(batch_of(GRAPH), None)[0].mean().item()
        losses[scale, weight] = trainer.epoch(1)["loss"]
        assert losses[scale, weight] == pytest.approx(expected, rel=1e-5)
    assert len(set(losses.values())) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"sampler": name}, f"objective softmax does not go with {name}: give sampler "
             "bernoulli, nscaching or uniform")
            for name in ("self-adversarial", "kbgan", "igan", "none")
        ),
        ({"negatives": 3}, "objective softmax draws no single negatives: leave out negatives"),
        ({"filter_known": True},
         "objective softmax draws no single negatives: leave out filter_known"),
        ({"candidates": "slots"},
         "objective softmax caches each entity once: leave out candidates slots"),
        ({"reciprocal": True, "objective": "margin"},
         "reciprocal goes with objective softmax, 1vsall or kvsall, not with margin"),
        ({"reciprocal": True, "objective": "auto"},
         "reciprocal goes with objective softmax, 1vsall or kvsall, not with margin"),
        ({"relation_weight": 0.5, "objective": "kvsall", "sampler": "none"},
         "relation_weight goes with objective softmax or 1vsall, not with kvsall"),
        ({"scale": 2.0, "objective": "logistic"},
         "scale goes with objective softmax or 1vsall, not with logistic"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        train(GRAPH, **SOFTMAX | settings)


@pytest.mark.parametrize("objective", ["auto", "1vsall", "kvsall"])
def test_inverses_go_with_all_entities(objective):
    config = TrainConfig(sampler="none", objective=objective, reciprocal=True)
    assert choose_objective(config, MODELS.get("TransE")) in ("1vsall", "kvsall")


@pytest.mark.parametrize(
    ("probes", "settings", "message"),
    [
        ({"probe_repeats": 1}, {}, "probe_repeats: objective softmax draws no single negatives"),
        ({"probe_changes": True}, {"n1": 0, "tail": 8}, "probe_changes: n1 0 keeps no cache"),
        ({"snapshots": (1,)}, {"n1": 0, "tail": 8}, "snapshots: n1 0 keeps no cache"),
        (
            {"snapshots": (1,)},
            {"n1": 0, "tail": 40},
            "snapshots: the softmax is over all 40 entities, without a cache; n1 20 keeps one",
        ),
    ],
)
def test_probes_that_would_see_nothing(probes, settings, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        train(GRAPH, probes=ProbeConfig(**probes), **SOFTMAX | settings)


def test_the_cache_has_to_fit():
    with pytest.raises(UserError, match=r"^n1 41 is larger than the number of entities, 40; give"):
        train(GRAPH, **SOFTMAX | {"n1": 41})


@pytest.mark.parametrize("able", [False, True])
def test_a_sampler_of_ones_own_says_whether_it_can(able):
    class Mine(SAMPLERS.get("uniform")):
        has_rivals = able

        def rivals(self, batch, model):
            return Rivals(torch.tensor([1, 2]), self.entities)

    config = TrainConfig.from_dict(SOFTMAX)
    rivals = Mine(GRAPH, config, CPU, 0).sample(batch_of(GRAPH), model_of("TransE", GRAPH))
    assert rivals.weight == 20
    assert Mine.has_rivals is able


# Whole trainings.


@pytest.fixture(scope="module")
def reciprocal_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("softmax") / "run"
    train(GRAPH, out=path, **SOFTMAX | {"model": "ComplEx", "reciprocal": True, "tail": 12})
    return path


def test_a_reciprocal_run_is_evaluated_by_its_inverses(reciprocal_run):
    run = Run.load(reciprocal_run, device="cpu")
    assert (run.model.reciprocal, run.model.relations, run.model.own_relations) == (True, 6, 3)
    ranks = [
        slow_rank(run.model, GRAPH, side, triple) for triple in GRAPH.test.tolist() for side in Side
    ]
    expected = float(np.mean(1 / np.array(ranks)))
    assert run.evaluate()["mrr"] == pytest.approx(expected)
    assert run.result("test")["mrr"] == pytest.approx(expected)
    assert run.evaluate(task="relations")["candidates"] == 3


def test_a_reciprocal_run_answers_by_its_inverses(reciprocal_run):
    run = Run.load(reciprocal_run, device="cpu")
    for side, asked in ((Side.HEAD, {"tail": "e7"}), (Side.TAIL, {"head": "e7"})):
        answers = run.predict(relation="r1", **asked, top=40, known="mark", any_type=True)
        score = {f"e{e}": slow_score(run.model, side, 7, 1, 7, e).item() for e in range(40)}
        assert [each[side.value] for each in answers] == sorted(score, key=score.get)[::-1]
        assert [each["score"] for each in answers] == pytest.approx(
            sorted(score.values())[::-1], abs=1e-6
        )
    names = {each["relation"] for each in run.predict(head="e1", tail="e2", known="mark")}
    assert names == {"r0", "r1", "r2"}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".tsv"])
def test_a_reciprocal_run_is_exported_with_its_inverses(reciprocal_run, suffix, tmp_path):
    run = Run.load(reciprocal_run, device="cpu")
    run.export(tmp_path / f"vectors{suffix}")
    vectors = load_vectors(tmp_path / f"vectors{suffix}")
    assert vectors.relations == ["r0", "r1", "r2", "r0⁻¹", "r1⁻¹", "r2⁻¹"]
    np.testing.assert_array_equal(vectors.relation, run.model.relation.detach().numpy())
    assert len(vectors.entity) == 40


def test_an_export_counts_inverses(reciprocal_run, tmp_path, capsys):
    main(["export", str(reciprocal_run), "--to", str(tmp_path / "x.npz")])
    assert capsys.readouterr().out.startswith("40 entities and 6 relations: ")


def test_a_run_without_a_cache_says_why(tmp_path):
    run = train(GRAPH, out=tmp_path / "run", **SOFTMAX | {"n1": 0, "epochs": 1})
    with pytest.raises(UserError, match=r"^run holds no cache: it was trained with n1 0$"):
        run.inspect(head="e1", relation="r1")


def test_a_run_starts_from_one_of_its_kind(reciprocal_run, tmp_path):
    plain = SOFTMAX | {"model": "ComplEx", "reciprocal": False}
    settings = plain | {"pretrain": str(reciprocal_run)}
    with pytest.raises(UserError, match=r"run: its reciprocal: True, here False$"):
        train(GRAPH, **settings)
    before = Run.load(reciprocal_run, device="cpu")
    run = train(GRAPH, **settings | {"reciprocal": True, "lr": 1e-12})
    torch.testing.assert_close(run.model.relation, before.model.relation)
    train(GRAPH, out=tmp_path / "plain", **plain)
    with pytest.raises(UserError, match=r"plain: its reciprocal: False, here True$"):
        train(GRAPH, **settings | {"pretrain": str(tmp_path / "plain"), "reciprocal": True})


@pytest.mark.parametrize("settings", [{}, {"n1": 0}, {"sampler": "bernoulli"}])
def test_the_seed_decides(settings):
    def parameters(seed):
        options = {"seed": seed, "model": "DistMult", "tail": 12, "relation_weight": 0.1}
        return train(GRAPH, **SOFTMAX | settings | options).model.state_dict()

    first, again, other = map(parameters, (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("ComplEx", {"reciprocal": True, "relation_weight": 0.1}),
        ("DistMult", {"n1": 0}),
        ("TransE", {"scale": 2.0, "refresh": "top"}),
    ],
)
def test_it_learns(model, settings):
    options = {
        "model": model, "dim": 16, "epochs": 4, "batch_size": 512, "lr": 0.05, "n1": 10,
        "tail": 128, "penalty": 0.0, "validate_every": 4,
    }  # fmt: skip
    run = train(KnowledgeGraph.load("world"), **SOFTMAX | options | settings)
    assert run.result("valid")["mrr"] > 0.05  # by chance it is 0.002
