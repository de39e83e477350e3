"""Every registered sampler, and the negative cache against plain twins and exact chances."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers import (
    FIXED,
    MANY,
    all_triples,
    batch_of,
    chances,
    fixed_model,
    goodness,
    graph_of,
    graphs,
    model_for,
    new_sampler,
    random_graph,
    repeated_graph,
)
from nscaching import TrainConfig, UserError
from nscaching.data.index import Side
from nscaching.samplers import SAMPLERS, draws, start

GRAPH = random_graph()
DRAWING = [name for name in SAMPLERS.names() if name != "none"]
samplers = pytest.mark.parametrize("sampler", DRAWING)
sides = pytest.mark.parametrize("side", list(Side))
plenty = settings(derandomize=True, deadline=None, max_examples=50)


def drawn(sampler, batch, model, rounds=1, rows=None):
    """Return (row, head, relation, tail) of the negatives of several rounds, with updates."""
    found = []
    rows = torch.arange(len(batch)) if rows is None else torch.tensor(rows)
    for _ in range(rounds):
        negatives = sampler.sample(batch, model)
        sampler.update(batch, model)
        for head, tail in zip(negatives.head.unbind(1), negatives.tail.unbind(1), strict=True):
            found += torch.stack([rows, head, batch.relation, tail], dim=1).tolist()
    return found


# All samplers.


# Only a cache knows other ways to draw than the first.
DRAWS = [(name, "uniform") for name in DRAWING]
DRAWS += [("nscaching", "importance"), ("nscaching", "top")]


@pytest.mark.parametrize(("sampler", "draw"), DRAWS)
@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("filter_known", [False, True])
def test_negatives_change_one_side(sampler, draw, count, filter_known):
    rows = [5, 0, 5, 31, 7]
    batch = batch_of(GRAPH, rows)
    options = {"sampler": sampler, "draw": draw, "negatives": count, "filter_known": filter_known}
    made = new_sampler(GRAPH, **options)
    negatives = made.sample(batch, model_for(GRAPH))
    assert negatives.head.shape == negatives.tail.shape
    assert negatives.head.shape == (5, count or (64 if sampler == "self-adversarial" else 1))
    assert negatives.adversarial == (1.0 if sampler == "self-adversarial" else 0.0)
    changed = negatives.replace_head.unsqueeze(1)
    assert (changed | (negatives.head == batch.head.unsqueeze(1))).all()
    assert (~changed | (negatives.tail == batch.tail.unsqueeze(1))).all()
    assert negatives.head.dtype == negatives.tail.dtype == torch.int64
    changed = Counter()
    for row, *negative in drawn(made, batch, model_for(GRAPH), rounds=40, rows=rows):
        head, relation, tail = GRAPH.train[row].tolist()
        assert negative[1] == relation
        assert negative[0] == head or negative[2] == tail
        assert {negative[0], negative[2]} <= set(range(len(GRAPH.entities)))
        changed[negative[0] != head, negative[2] != tail] += 1
    assert changed[True, False] > 20
    assert changed[False, True] > 20


def test_a_sampler_gives_as_many_as_it_says():
    class TooFew(type(new_sampler(GRAPH, sampler="bernoulli"))):
        def negatives(self, batch, model):
            ids = self.random_entities(len(batch))
            return batch.corrupt(self.choose_head(batch), ids, ids)

    config = TrainConfig(negatives=3)
    made = TooFew(GRAPH, config, torch.device("cpu"), 0)
    with pytest.raises(UserError, match=r"^TooFew gives 1 negatives of each triple, not 3$"):
        made.sample(batch_of(GRAPH), model_for(GRAPH))


@samplers
def test_every_entity_can_be_drawn(sampler):
    found = drawn(new_sampler(GRAPH, sampler=sampler), batch_of(GRAPH), model_for(GRAPH), 20)
    everyone = set(range(len(GRAPH.entities)))
    heads = {head for row, head, _, _ in found if head != GRAPH.train[row, 0]}
    tails = {tail for row, _, _, tail in found if tail != GRAPH.train[row, 2]}
    assert heads == tails == everyone


@samplers
@pytest.mark.parametrize("filter_known", [False, True])
def test_seed_decides(sampler, filter_known):
    def draws(seed):
        made = new_sampler(GRAPH, seed, sampler=sampler, filter_known=filter_known)
        return drawn(made, batch_of(GRAPH), model_for(GRAPH), rounds=3)

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def known_but_unavoidable(graph, row):
    """Tell whether every replacement of either side of a training triple is a training triple."""
    head, relation, tail = graph.train[row].tolist()
    train = all_triples(graph, ["train"])
    everyone = range(len(graph.entities))
    return all((e, relation, tail) in train and (head, relation, e) in train for e in everyone)


def check_filter(graph, sampler, **options):
    made = new_sampler(graph, sampler=sampler, filter_known=True, **options)
    train = all_triples(graph, ["train"])
    for row, *negative in drawn(made, batch_of(graph), model_for(graph), rounds=5):
        assert tuple(negative) not in train or known_but_unavoidable(graph, row)


@samplers
@given(
    graph=graphs(),
    refresh=st.sampled_from(["importance", "top", "uniform"]),
    candidates=st.sampled_from(["set", "slots"]),
)
@plenty
def test_known_triples_are_kept_out(sampler, graph, refresh, candidates):
    check_filter(graph, sampler, refresh=refresh, candidates=candidates, n1=2)


@samplers
def test_known_triples_are_kept_out_of_a_dense_graph(sampler):
    # Of 60 tails of head 0 only the last makes a new triple, and of heads none does.
    full = [(h, 0, t) for h in range(60) for t in range(59)]
    count = 4 if sampler == "self-adversarial" else None  # not 64 of so many triples
    check_filter(graph_of(full, entities=60), sampler, negatives=count)


@samplers
def test_every_triple_is_known(sampler):
    graph = graph_of(itertools.product(range(5), range(2), range(5)))
    made = new_sampler(graph, sampler=sampler, filter_known=True)
    for row, *negative in drawn(made, batch_of(graph), model_for(graph), rounds=3):
        assert known_but_unavoidable(graph, row)
        assert set(negative) <= set(range(5))


# Heads per tail and tails per head differ by relation: 1-N, N-1 and 1-1 on many spare entities.
SIDED = graph_of(
    [(0, 0, t) for t in range(1, 10)]
    + [(h, 1, 0) for h in range(1, 5)]
    + [(i, 2, i + 20) for i in range(5)],
    entities=1000,
)


def slow_head_probability(graph, relation):
    tails, heads = {}, {}
    for h, r, t in graph.train.tolist():
        if r == relation:
            tails.setdefault(h, set()).add(t)
            heads.setdefault(t, set()).add(h)
    tph = np.mean([len(s) for s in tails.values()])
    hpt = np.mean([len(s) for s in heads.values()])
    return tph / (tph + hpt)


@pytest.mark.parametrize(
    ("options", "fair"),
    [
        ({"sampler": "uniform", "side": "bernoulli"}, True),
        ({"sampler": "bernoulli", "side": "uniform"}, False),
        ({"sampler": "nscaching", "side": "bernoulli"}, False),
        ({"sampler": "nscaching", "side": "uniform"}, True),
    ],
)
@pytest.mark.parametrize("relation", [0, 1, 2])
def test_side_frequencies(options, fair, relation):
    made = new_sampler(SIDED, **options)
    rows = np.flatnonzero(SIDED.train[:, 1] == relation)
    batch = batch_of(SIDED, np.resize(rows, 20_000))
    negatives = made.sample(batch, model_for(SIDED))
    head_changed = negatives.head[:, 0] != batch.head
    tail_changed = negatives.tail[:, 0] != batch.tail
    changed = int((head_changed | tail_changed).sum())  # by chance a negative is the positive
    assert changed > 19_500
    p = 0.5 if fair else slow_head_probability(SIDED, relation)
    assert p == {0: 0.9, 1: 0.2, 2: 0.5}[relation] or fair
    assert stats.binomtest(int(head_changed.sum()), changed, p).pvalue > 0.001


@pytest.mark.parametrize("sampler", ["uniform", "bernoulli", "self-adversarial", "nscaching"])
def test_a_drawn_entity_is_equally_likely_to_be_any(sampler):
    graph = random_graph(entities=10, relations=2, train=60)
    batch = batch_of(graph)
    entities = Counter()
    for seed in range(100):
        negatives = new_sampler(graph, seed, sampler=sampler).sample(batch, model_for(graph))
        behind = (negatives.head[:, 0] - batch.head) % 10  # zero: the head is as it was
        entities.update(behind[behind > 0].tolist())
    assert goodness(entities, dict.fromkeys(range(1, 10), 1 / 9)) > 0.001


# The cache.


def slow_keys(graph, side):
    return {(t, r) if side is Side.HEAD else (h, r) for h, r, t in graph.train.tolist()}


@sides
def test_cache_is_keyed_by_the_query(side):
    made = new_sampler(GRAPH, n1=5)
    assert made.cache.rows[side].dtype == torch.int32
    assert made.cache.rows[side].shape == (len(slow_keys(GRAPH, side)), 5)
    assert torch.equal(made.state()[f"{side.value}_cache"], made.cache.rows[side])
    # Give each query an entity of its own: negatives of a triple must come from its queries.
    marker = {query: (3 * query[0] + 5 * query[1]) % 12 for query in slow_keys(GRAPH, side)}
    marks = []
    for row, (h, r, t) in enumerate(GRAPH.train.tolist()):
        marks.append(marker[t if side is Side.HEAD else h, r])
        made.cache.rows[side][GRAPH.train_keys[side][row]] = marks[-1]
    column = 0 if side is Side.HEAD else 2
    other = 2 - column
    hit = 0
    for row, *negative in drawn(made, batch_of(GRAPH), model_for(GRAPH)):
        if negative[other] == GRAPH.train[row, other]:
            replaced = negative[column] != GRAPH.train[row, column]
            assert not replaced or negative[column] == marks[row]
            hit += replaced
    assert hit > 5


class Spy:
    """A model that notes the queries it is asked to score."""

    def __init__(self, model):
        self.model, self.asked, self.entities = model, [], model.entities

    def score_candidates(self, side, anchor, relation, candidates, dtype=None):
        queries = torch.stack([anchor, relation], dim=1).tolist()
        self.asked.append((side, list(map(tuple, queries)), candidates.clone()))
        return self.model.score_candidates(side, anchor, relation, candidates)


def test_one_update_for_each_key_of_a_batch():
    # Three tails of (0, r0), two heads of (r0, 1); the last triple is of another key.
    graph = graph_of([(0, 0, 1), (0, 0, 2), (0, 0, 3), (4, 0, 1), (5, 0, 6)])
    made, spy = new_sampler(graph), Spy(model_for(graph))
    made.update(batch_of(graph, [0, 1, 2, 3, 0]), spy)
    asked = {side: (queries, candidates) for side, queries, candidates in spy.asked}
    assert len(spy.asked) == len(asked) == 2
    assert sorted(asked[Side.HEAD][0]) == [(1, 0), (2, 0), (3, 0)]
    assert sorted(asked[Side.TAIL][0]) == [(0, 0), (4, 0)]
    for _, candidates in asked.values():
        assert candidates.shape[1] == made.config.cache.n1 + made.config.cache.n2


@sides
def test_only_keys_of_the_batch_change(side):
    graph = random_graph(entities=40, train=60)
    made = new_sampler(graph, refresh="uniform")
    before = made.cache.rows[side].clone()
    batch = batch_of(graph, [3, 8, 21])
    made.update(batch, model_for(graph))
    touched = set(batch.key(side).tolist())
    changed = (made.cache.rows[side] != before).any(1).nonzero().flatten().tolist()
    assert changed
    assert set(changed) <= touched


@pytest.mark.parametrize("lazy", [0, 1, 2, 3])
def test_lazy_refreshes_in_one_epoch_of_many(lazy):
    made = new_sampler(GRAPH, lazy=lazy, refresh="uniform")
    refreshed = []
    for epoch in range(1, 9):
        before = {side: table.clone() for side, table in made.cache.rows.items()}
        made.begin_epoch(epoch)
        drawn(made, batch_of(GRAPH), model_for(GRAPH))
        changed = {not torch.equal(before[side], made.cache.rows[side]) for side in Side}
        assert len(changed) == 1
        refreshed += changed
    assert refreshed == [epoch % (lazy + 1) == 0 for epoch in range(8)]


@pytest.mark.parametrize("candidates", ["set", "slots"])
@pytest.mark.parametrize("filter_known", [False, True])
@pytest.mark.parametrize("model", ["TransE", "ComplEx"])
def test_top_refresh_agrees_with_a_plain_twin(candidates, filter_known, model):
    graph = random_graph(entities=9, train=50)
    model = model_for(graph, model, seed=3)
    options = {"candidates": candidates, "filter_known": filter_known}
    made = new_sampler(graph, refresh="top", n1=3, n2=4, **options)
    train = all_triples(graph, ["train"])
    for rows in (range(20), [4, 30, 49], range(50)):
        batch, spy = batch_of(graph, list(rows)), Spy(model)
        before = {side: table.clone() for side, table in made.cache.rows.items()}
        made.update(batch, spy)
        for side, queries, offered in spy.asked:
            for query, entities in zip(queries, offered.tolist(), strict=True):
                anchor, relation = query

                def triple(e, side=side, anchor=anchor, relation=relation):
                    return (e, relation, anchor) if side is Side.HEAD else (anchor, relation, e)

                def score(e, triple=triple):
                    return model.score(*map(torch.tensor, triple(e))).item()

                key = graph.train_index[side].keys(np.array([anchor]), np.array([relation]))[0]
                assert entities[:3] == before[side][key].tolist()
                pool = sorted(set(entities)) if candidates == "set" else entities
                if filter_known:
                    pool = [e for e in pool if triple(e) not in train]
                best = sorted(pool, key=score, reverse=True)[:3]
                best = [best[i % len(best)] for i in range(3)]
                assert sorted(made.cache.rows[side][key].tolist()) == sorted(best)


@given(graph=graphs(), refresh=st.sampled_from(["importance", "top", "uniform"]))
@plenty
def test_a_set_holds_no_entity_twice(graph, refresh):
    most = len(graph.entities)
    for n1 in {1, most // 2 + 1, most}:
        made = new_sampler(graph, refresh=refresh, n1=n1, n2=4)
        for _ in range(3):
            for side in Side:
                for row in made.cache.rows[side].tolist():
                    assert len(set(row)) == n1
                    assert set(row) <= set(range(most))
            made.update(batch_of(graph), model_for(graph))


def test_slots_may_repeat():
    made = new_sampler(GRAPH, candidates="slots", refresh="top", n1=8, n2=8)
    for _ in range(5):
        made.update(batch_of(GRAPH), model_for(GRAPH))
    # The best slots are more and more often the best entity again.
    assert min(len(set(row)) for row in made.cache.rows[Side.HEAD].tolist()) <= 2


def test_cache_of_all_entities():
    made = new_sampler(GRAPH, n1=len(GRAPH.entities))
    made.update(batch_of(GRAPH), model_for(GRAPH))
    for side in Side:
        everyone = torch.arange(len(GRAPH.entities), dtype=torch.int32)
        assert torch.equal(
            made.cache.rows[side].sort(1).values, everyone.expand_as(made.cache.rows[side])
        )


def test_cache_larger_than_the_graph():
    with pytest.raises(UserError, match=r"n1 13 .* entities, 12"):
        new_sampler(GRAPH, n1=13)


@sides
@pytest.mark.parametrize("filter_known", [False, True])
def test_filling_piece_by_piece(side, filter_known, monkeypatch):
    monkeypatch.setattr(start, "FILL_ROWS", 7)
    monkeypatch.setattr(draws, "CHOICE_PAIRS", 30)
    made = new_sampler(GRAPH, n1=9, filter_known=filter_known)
    index = GRAPH.train_index[side]
    for key, row in enumerate(made.cache.rows[side].tolist()):
        known = set(index.answers[index.offsets[key] : index.offsets[key + 1]].tolist())
        if filter_known:
            assert not known & set(row)
        assert len(set(row)) == min(9, 12 - len(known) if filter_known else 9)


@sides
@pytest.mark.parametrize("n1", [2, 7])  # drawn anew where it repeats; chosen among all
def test_the_start_is_uniform(side, n1):
    graph = graph_of([(r % 8, r, r % 8) for r in range(4000)], entities=8)
    table = new_sampler(graph, n1=n1).cache.rows[side]
    seen = Counter(frozenset(row) for row in table.tolist())
    every = [frozenset(some) for some in itertools.combinations(range(8), n1)]
    assert goodness(seen, dict.fromkeys(every, 1 / len(every))) > 0.001


@sides
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("draw", ["uniform", "importance", "top"])
def test_draw_from_the_cache(side, temperature, draw):
    graph = repeated_graph()
    made = new_sampler(graph, n1=3, draw=draw, temperature=temperature)
    made.cache.rows[side][:] = torch.tensor([1, 3, 4])
    made.cache.rows[Side.TAIL if side is Side.HEAD else Side.HEAD][:] = 2
    negatives = made.sample(batch_of(graph), fixed_model(graph))
    column = negatives.head if side is Side.HEAD else negatives.tail
    seen = Counter(column[column != 0].tolist())
    if draw == "top":
        assert set(seen) == {3}
        return
    scores = [0.0] * 3 if draw == "uniform" else FIXED[[1, 3, 4]].tolist()
    # the temperature is that of the refresh alone
    expected = {(1, 3, 4)[slot]: chance for (slot,), chance in chances(scores, 1, 1.0).items()}
    assert sum(seen.values()) > 0.4 * MANY
    assert goodness(seen, expected) > 0.001
