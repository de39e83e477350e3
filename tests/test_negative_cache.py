"""NegativeCache as a part of other people's training loops."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import pytest
import torch

from helpers import (
    FIXED,
    batch_of,
    chances,
    goodness,
    new_kernels,
    new_model,
    new_sampler,
    random_graph,
    twins,
)
from nscaching import NegativeCache, UserError
from nscaching.data.index import Side

GRAPH = random_graph()
TRIPLES = torch.from_numpy(GRAPH.train).long()
SIZES = len(GRAPH.entities), len(GRAPH.relations)


def new_cache(n1=4, n2=3, **options):
    return NegativeCache(TRIPLES, *SIZES, n1, n2, **options)


def by_sum(head, relation, tail):
    """Score by whole numbers: the same on every path."""
    return (3.0 * head + 5 * relation + 7 * tail) % 11


def test_the_cache_is_filled_when_it_is_made():
    cache = new_cache(n1=5)
    for side in Side:
        rows = cache.rows[side]
        assert rows.dtype == torch.int32
        assert len(rows) == len(GRAPH.train_index[side])
        assert len(rows.unique()) == SIZES[0]  # not one entity for ever
        assert all(len(set(row)) == 5 for row in rows.tolist())
    different = new_cache(n1=5, seed=1)
    assert not torch.equal(different.rows[Side.HEAD], cache.rows[Side.HEAD])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("given", ["tensor", "int32", "numpy", "list"])
def test_samples_come_from_the_rows_of_their_queries(k, given):
    cache = new_cache()
    columns = TRIPLES.T
    if given == "int32":
        columns = columns.int()
    elif given == "numpy":
        columns = GRAPH.train.T
    elif given == "list":
        columns = columns.tolist()
    negatives = cache.sample(*columns, k=k)
    assert negatives.entity.shape == (len(TRIPLES), k)
    assert 0 < int(negatives.replace_head.sum()) < len(TRIPLES)
    for row, (h, r, t) in enumerate(TRIPLES.tolist()):
        entity = negatives.entity[row]
        if negatives.replace_head[row]:
            held = cache.entries(relation=r, tail=t)
            assert torch.equal(negatives.head[row], entity)
            assert (negatives.tail[row] == t).all()
        else:
            held = cache.entries(head=h, relation=r)
            assert torch.equal(negatives.tail[row], entity)
            assert (negatives.head[row] == h).all()
        assert set(entity.tolist()) <= set(held.tolist())
        assert len(set(entity.tolist())) == k


def test_a_refresh_by_top_keeps_the_best_of_cached_and_fresh():
    cache = new_cache(n1=4, n2=4, refresh="top")
    before = cache.rows[Side.TAIL].clone()
    for _ in range(60):  # every entity is a candidate at some time
        cache.sample(*TRIPLES.T)
        cache.refresh(*TRIPLES.T, by_sum)
    for h, r, _ in TRIPLES.tolist()[:20]:
        scores = by_sum(torch.tensor(h), torch.tensor(r), torch.arange(SIZES[0]))
        held = cache.entries(head=h, relation=r)
        assert sorted(scores[held].tolist()) == sorted(scores.topk(4).values.tolist())
    assert not torch.equal(before, cache.rows[Side.TAIL])


def test_a_refresh_by_importance_has_the_exact_chances():
    """Five entities with fixed scores; the first two are cached, all five may survive."""
    relations = 4000
    triples = torch.tensor([(0, r, 0) for r in range(relations)])
    cache = NegativeCache(triples, 5, relations, n1=2, n2=1)
    cache.rows[Side.TAIL][:] = torch.tensor([0, 1])
    cache.refresh(*triples.T, lambda h, r, t: FIXED[t] + 0.0 * (h + r))
    seen = Counter(tuple(sorted(row)) for row in cache.rows[Side.TAIL].tolist())
    expected = Counter()
    for fresh in range(5):  # each equally likely
        pool = sorted({0, 1, fresh})
        for order, chance in chances(FIXED[pool].tolist(), 2).items():
            expected[tuple(sorted(pool[column] for column in order))] += chance / 5
    assert goodness(seen, expected) > 0.001


@pytest.mark.parametrize("name", ["TransE", "ComplEx", "TransD", "RotatE", "ManifoldE"])
@pytest.mark.parametrize("refresh", ["importance", "top"])
def test_a_model_of_ours_and_its_score_function_refresh_alike(name, refresh):
    model = new_model(name, *SIZES)
    by_model, by_function = new_cache(refresh=refresh), new_cache(refresh=refresh)
    for cache, score in ((by_model, model), (by_function, model.score)):
        for _ in range(3):
            cache.sample(*TRIPLES.T)
            cache.refresh(*TRIPLES.T, score)
    for side in Side:
        rows = zip(by_model.rows[side].tolist(), by_function.rows[side].tolist(), strict=True)
        assert np.mean([one == other for one, other in rows]) > 0.95  # rounding may swap a few


@twins
@pytest.mark.parametrize("k", [1, 2])
def test_columns_of_a_table_are_drawn_alike_on_every_path(twin, k):
    """The columns of a table [n, 3] do not lie together in memory."""
    columns = TRIPLES.T
    assert not columns[0].is_contiguous()
    fast, plain = (new_cache(kernels=new_kernels(path)) for path in (twin, "reference"))
    model = new_model("DistMult", *SIZES)
    for _ in range(2):
        ours, theirs = (cache.sample(*columns, k=k) for cache in (fast, plain))
        assert torch.equal(ours.head, theirs.head)
        assert torch.equal(ours.tail, theirs.tail)
        for cache in (fast, plain):
            cache.refresh(*columns, model)


def test_the_sampler_and_the_cache_are_one():
    """The sampler nscaching gives what its cache gives in a loop of one's own."""
    model, cache = new_model("DistMult", *SIZES), new_cache(seed=5)
    sampler = new_sampler(GRAPH, seed=5, n1=4, n2=3)
    for _ in range(3):
        ours, theirs = cache.sample(*TRIPLES.T), sampler.sample(batch_of(GRAPH), model)
        assert torch.equal(ours.head, theirs.head)
        assert torch.equal(ours.tail, theirs.tail)
        cache.refresh(*TRIPLES.T, model.score)
        sampler.update(batch_of(GRAPH), model)


@pytest.mark.parametrize("draw", ["importance", "top"])
def test_draws_by_score(draw):
    cache = new_cache(draw=draw)
    with pytest.raises(UserError, match=rf"draw = '{draw}' needs scores: give score= to sample"):
        cache.sample(*TRIPLES.T)
    negatives = cache.sample(*TRIPLES.T, score=by_sum)
    for (h, r, t), entity, replaced in zip(
        TRIPLES.tolist(), negatives.entity.tolist(), negatives.replace_head.tolist(), strict=True
    ):
        held = cache.entries(relation=r, tail=t) if replaced else cache.entries(h, r)
        assert entity[0] in held.tolist()
        if draw == "top":
            scores = by_sum(held, r, t) if replaced else by_sum(h, r, held)
            assert scores.max() == scores[held.tolist().index(entity[0])]


def test_only_the_drawn_side_is_refreshed():
    cache = new_cache(refresh_side="drawn", refresh="top")
    one = TRIPLES[:1]
    with pytest.raises(UserError, match="needs a sample of the same batch"):
        cache.refresh(*one.T, by_sum)
    sides = set()
    for _ in range(20):
        before = {side: cache.rows[side].clone() for side in Side}
        negatives = cache.sample(*one.T)
        cache.refresh(*one.T, by_sum)
        changed = {side for side in Side if not torch.equal(before[side], cache.rows[side])}
        drawn = Side.HEAD if negatives.replace_head[0] else Side.TAIL
        assert changed <= {drawn}
        sides |= changed
    assert sides == set(Side)


def test_known_triples_are_left_out():
    cache = new_cache(n1=8, filter_known=True)
    known = set(map(tuple, TRIPLES.tolist()))
    for _ in range(5):
        negatives = cache.sample(*TRIPLES.T, k=2)
        cache.refresh(*TRIPLES.T, by_sum)
        relation = TRIPLES[:, 1:2].expand_as(negatives.head)
        false = torch.stack([negatives.head, relation, negatives.tail], 2).reshape(-1, 3)
        assert not known & set(map(tuple, false.tolist()))


def test_the_state_is_restored_with_its_random_numbers():
    cache = new_cache()
    cache.sample(*TRIPLES.T)
    cache.refresh(*TRIPLES.T, by_sum)
    state = {name: tensor.clone() for name, tensor in cache.state_dict().items()}
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    other = new_cache()
    other.load_state_dict(state)
    for _ in range(2):
        ours, theirs = (each.sample(*TRIPLES.T) for each in (cache, other))
        assert torch.equal(ours.entity, theirs.entity)
        for each in (cache, other):
            each.refresh(*TRIPLES.T, by_sum)
    assert torch.equal(cache.rows[Side.HEAD], other.rows[Side.HEAD])


def test_a_state_that_does_not_fit():
    state = new_cache().state_dict()
    with pytest.raises(UserError, match="the state holds n1 = 4, not 5"):
        new_cache(n1=5).load_state_dict(state)
    fewer = NegativeCache(TRIPLES[1:], *SIZES, 4, 3)
    with pytest.raises(UserError, match="the state belongs to a cache of other training triples"):
        fewer.load_state_dict(state)


def test_a_query_that_training_does_not_have():
    triples = torch.tensor([(0, 0, 1), (2, 1, 3)])
    cache = NegativeCache(triples, 4, 2, n1=2, n2=2)
    for h, r, t, query in (
        (1, 0, 1, r"\(1, 0, \?\)"),
        (0, 0, 3, r"\(\?, 0, 3\)"),
        (0, 1, 1, r"\(\?, 1, 1\)"),
        (0, -1, 1, r"\(\?, -1, 1\)"),
        (2, 2, 3, r"\(\?, 2, 3\)"),  # whose code would be that of another query
        (99, 0, 1, r"\(99, 0, \?\)"),
    ):
        with pytest.raises(UserError, match=rf"the training triples have no query {query}"):
            cache.sample([h], [r], [t])
        with pytest.raises(UserError, match="no query"):
            cache.refresh([h], [r], [t], by_sum)
    with pytest.raises(UserError, match="no query"):
        cache.entries(head=1, relation=0)
    with pytest.raises(UserError, match="entries takes relation and one of head and tail"):
        cache.entries(head=1)


def test_what_the_cache_says_of_itself():
    cache = new_cache()
    rows = sum(ids.nbytes for ids in cache.rows.values())
    queries = sum(len(ids) for ids in cache.rows.values())
    assert cache.nbytes == rows + 16 * queries
    assert "n1=4, n2=3" in repr(cache)
    assert "MiB on cpu" in repr(cache)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n1": 0}, r"n1 = 0 is not in 1 … \d+, the number of entities"),
        ({"n1": 10_000}, "n1 = 10000 is not in 1"),
        ({"n2": 0}, "n2 = 0: a refresh needs at least one fresh candidate"),
        ({"temperature": 0.0}, "temperature = 0.0 is not a positive number"),
        ({"draw": "best"}, "unknown draw 'best'; known: uniform, importance, top"),
        ({"side": "both"}, "unknown side 'both'; known: bernoulli, uniform"),
    ],
)
def test_arguments_that_make_no_sense(options, reason):
    with pytest.raises(UserError, match=reason):
        new_cache(**{"n1": 4, "n2": 3, **options})


@pytest.mark.parametrize(
    ("triples", "reason"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), r"whole numbers \[n, 3\], not int64 \[3, 2\]"),
        (torch.zeros(3, 3), r"whole numbers \[n, 3\], not float32"),
        (torch.zeros(0, 3, dtype=torch.int64), "triples are empty"),
        (np.array([(0, 0, 0), (0, 1, 9)]), r"triple 1, \[0, 1, 9\], is out of range of 9 entities"),
        (np.array([(0, -1, 0)]), r"triple 0, \[0, -1, 0\], is out of range"),
    ],
)
def test_triples_that_make_no_sense(triples, reason):
    with pytest.raises(UserError, match=reason):
        NegativeCache(triples, 9, 2, n1=2, n2=2)


def test_a_score_of_the_wrong_shape():
    cache = new_cache()
    with pytest.raises(UserError, match=r"score gave \[\d+\] for ids of shapes"):
        cache.refresh(*TRIPLES.T, lambda h, r, t: (h + r + t).float().sum(1))
    with pytest.raises(UserError, match="k = 5 is not in 1 … n1 = 4"):
        cache.sample(*TRIPLES.T, k=5)


def test_ids_that_are_no_triples():
    cache = new_cache()
    h, r, t = TRIPLES.T
    with pytest.raises(UserError, match="1 heads, 1 relations and 6 tails are no triples"):
        cache.sample(h[:1], r[:1], t[:6])
    with pytest.raises(UserError, match=r"ids must be whole numbers, not torch\.float32"):
        cache.sample(h.float(), r, t)
    with pytest.raises(UserError, match="score must be a function or a model, not None"):
        cache.refresh(h, r, t, None)
    assert cache.sample([], [], []).entity.shape == (0, 1)


def test_a_refresh_of_another_batch_than_was_drawn():
    cache = new_cache(refresh_side="drawn")
    cache.sample(*TRIPLES[:5].T)
    with pytest.raises(UserError, match="needs a sample of the same batch before"):
        cache.refresh(*TRIPLES[5:10].T, by_sum)


def test_a_damaged_state_changes_nothing():
    cache = new_cache()
    before = {side: rows.clone() for side, rows in cache.rows.items()}
    state = {name: tensor.clone() for name, tensor in new_cache(seed=1).state_dict().items()}
    with pytest.raises(UserError, match="the state of a cache lacks tick"):
        cache.load_state_dict({name: value for name, value in state.items() if name != "tick"})
    state["tail_cache"][3, 1] = SIZES[0]
    with pytest.raises(UserError, match=rf"holds entities outside of 0 … {SIZES[0] - 1}"):
        cache.load_state_dict(state)
    assert all(torch.equal(cache.rows[side], before[side]) for side in Side)


def test_a_state_brings_its_seed():
    one, other = new_cache(seed=4), new_cache(seed=9)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.sample(*TRIPLES.T).entity, other.sample(*TRIPLES.T).entity)


@twins
@pytest.mark.parametrize("filter_known", [False, True])
def test_a_deep_copy_goes_on_alone(twin, filter_known):
    cache = new_cache(kernels=new_kernels(twin), filter_known=filter_known)
    cache.sample(*TRIPLES.T)
    before = {side: rows.clone() for side, rows in cache.rows.items()}
    other = copy.deepcopy(cache)
    drawn = []
    for each in (other, cache):  # one after the other: neither may change the other
        assert all(torch.equal(each.rows[side], before[side]) for side in Side)
        for _ in range(2):
            drawn.append(each.sample(*TRIPLES.T).entity)
            each.refresh(*TRIPLES.T, by_sum)
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])
    assert all(torch.equal(cache.rows[side], other.rows[side]) for side in Side)
    assert not torch.equal(cache.rows[Side.HEAD], before[Side.HEAD])
