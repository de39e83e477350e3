"""Filtered ranking against a slow twin that is plain to read."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from helpers import all_triples, graphs, model_for, new_model, random_graph
from nscaching import UserError
from nscaching.data.index import Side
from nscaching.evaluation.ranking import Queries, chunk_size, evaluate, rank
from nscaching.evaluation.ranks import METRICS, metrics
from nscaching.kernels.standing import SCORE_BYTES
from nscaching.models import MODELS

plenty = settings(derandomize=True, deadline=None, max_examples=50)


def quantised(name, graph, seed):
    """Make a model whose scores are small whole numbers: exact, and often equal."""
    model = model_for(graph, name, dim=3)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in model.parameters():
            table.copy_(torch.randint(-1, 2, table.shape, generator=random))
        if model.family == "translational":  # rows of unit length before they are scaled to it
            axis = torch.randint(3, (len(graph.entities),), generator=random)
            model.entity.copy_(torch.eye(3)[axis])
    return model


def slow_ranks(model, graph, triples, filtered):
    """Return {side: [(optimistic, pessimistic)]}, one score at a time."""
    known = all_triples(graph)
    found = {side: [] for side in Side}
    for h, r, t in triples.tolist():
        for side in Side:
            true = model.score(*map(torch.tensor, (h, r, t))).item()
            better = equal = 0
            for e in range(len(graph.entities)):
                triple = (e, r, t) if side is Side.HEAD else (h, r, e)
                if triple == (h, r, t) or (filtered and triple in known):
                    continue
                score = model.score(*map(torch.tensor, triple)).item()
                better += score > true
                equal += score == true
            found[side].append((better + 1, better + equal + 1))
    return found


def slow_metrics(ranks):
    n = len(ranks)
    return {
        "mrr": sum(1 / rank for rank in ranks) / n,
        "mr": sum(ranks) / n,
        "hits@1": sum(rank <= 1 for rank in ranks) / n,
        "hits@3": sum(rank <= 3 for rank in ranks) / n,
        "hits@10": sum(rank <= 10 for rank in ranks) / n,
    }


def resolve(pairs, ties):
    choose = {"optimistic": min, "pessimistic": max, "realistic": lambda pair: sum(pair) / 2}
    return [choose[ties](pair) for pair in pairs]


def figures(report):
    return {name: report[name] for name in METRICS}


@pytest.mark.parametrize("name", ["DistMult", "ComplEx", "TransE"])
@given(graph=graphs(), seed=st.integers(0, 999), filtered=st.booleans())
@plenty
def test_ranks_agree_with_the_slow_twin(name, graph, seed, filtered):
    model = quantised(name, graph, seed)
    got = rank(model, Queries(graph, graph.test, filtered))
    for side, expected in slow_ranks(model, graph, graph.test, filtered).items():
        pairs = list(zip(got[side].optimistic, got[side].pessimistic, strict=True))
        assert pairs == expected


@given(
    graph=graphs(),
    seed=st.integers(0, 999),
    filtered=st.booleans(),
    ties=st.sampled_from(["realistic", "optimistic", "pessimistic"]),
    split=st.sampled_from(["train", "valid", "test"]),
)
@plenty
def test_report_agrees_with_the_slow_twin(graph, seed, filtered, ties, split):
    model = quantised("DistMult", graph, seed)
    report = evaluate(model, graph, split, filtered=filtered, ties=ties)
    triples = graph.split(split)
    pairs = slow_ranks(model, graph, triples, filtered)
    ranks = {side: resolve(pairs[side], ties) for side in Side}

    def check(part, rows):
        assert part["triples"] == len(rows)
        both = [ranks[side][row] for side in Side for row in rows]
        assert figures(part) == pytest.approx(slow_metrics(both))
        for side in Side:
            one = slow_metrics([ranks[side][row] for row in rows])
            assert part["by_side"][side.value] == pytest.approx(one)

    check(report, range(len(triples)))
    relation = triples[:, 1].tolist()
    assert set(report["by_relation"]) == {graph.relations[r] for r in relation}
    for name, part in report["by_relation"].items():
        r = graph.relations.index(name)
        assert part["class"] == graph.mapping_classes[r]
        check(part, [row for row, its in enumerate(relation) if its == r])
    assert set(report["by_class"]) == {graph.mapping_classes[r] for r in relation}
    for name, part in report["by_class"].items():
        rows = [row for row, r in enumerate(relation) if graph.mapping_classes[r] == name]
        check(part, rows)
    # The parts add up to the whole.
    for parts in (report["by_class"].values(), report["by_relation"].values()):
        assert sum(part["triples"] for part in parts) == report["triples"]
        for name in METRICS:
            whole = sum(part["triples"] * part[name] for part in parts) / report["triples"]
            assert whole == pytest.approx(report[name])
    for name in METRICS:
        mean = sum(part[name] for part in report["by_side"].values()) / 2
        assert mean == pytest.approx(report[name])


def test_ties_do_happen_in_these_graphs():
    graph = random_graph()
    ranks = rank(quantised("DistMult", graph, 0), Queries(graph, graph.test))
    assert all((ranks[side].optimistic < ranks[side].pessimistic).any() for side in Side)
    raw = rank(quantised("DistMult", graph, 0), Queries(graph, graph.test, filtered=False))
    assert all((ranks[side].optimistic < raw[side].optimistic).any() for side in Side)


@pytest.mark.parametrize("name", MODELS.names())
def test_ranks_of_every_model(name):
    graph = random_graph(entities=15, train=60)
    model = new_model(name, 15, 3, norm=2, seed=5)
    got = rank(model, Queries(graph, graph.test))
    for side, expected in slow_ranks(model, graph, graph.test, True).items():
        optimistic, pessimistic = zip(*expected, strict=True)
        assert got[side].optimistic.tolist() == list(optimistic)
        assert got[side].pessimistic.tolist() == list(pessimistic)


@pytest.mark.parametrize("ties", ["realistic", "optimistic", "pessimistic"])
def test_a_model_that_knows_nothing(ties):
    graph = random_graph(entities=11)
    model = new_model("DistMult", 11, 3)
    torch.nn.init.zeros_(model.entity)
    report = evaluate(model, graph, filtered=False, ties=ties)
    assert report["mr"] == {"realistic": 6, "optimistic": 1, "pessimistic": 11}[ties]


def test_metrics_by_hand():
    got = metrics(np.array([1.0, 1.5, 3.0, 10.0, 10.5]))
    assert got["mrr"] == pytest.approx((1 + 2 / 3 + 1 / 3 + 1 / 10 + 2 / 21) / 5)
    assert got["mr"] == pytest.approx(26 / 5)
    assert (got["hits@1"], got["hits@3"], got["hits@10"]) == (0.2, 0.6, 0.8)


@pytest.mark.parametrize("name", MODELS.names())
def test_the_memory_budget_does_not_change_the_result(name):
    graph = random_graph()
    model = new_model(name, 12, 3)
    whole = evaluate(model, graph)
    for budget in (0, 1, 3 * 12 * SCORE_BYTES, 5 * 12 * SCORE_BYTES + 1, 1 << 30):
        assert evaluate(model, graph, budget=budget) == whole


@given(entities=st.integers(1, 10**8), budget=st.integers(0, 1 << 40))
@plenty
def test_a_chunk_respects_the_budget(entities, budget):
    for name in MODELS.names():
        model = MODELS.get(name)(1, 1, 1)
        model.entities = entities
        chunk = chunk_size(model, budget)
        assert chunk >= 1
        assert chunk == 1 or chunk * entities * SCORE_BYTES <= budget
        # With a form it is not smaller than it need be.
        assert model.form is None or (chunk + 1) * entities * SCORE_BYTES > budget


def test_a_chunk_of_a_model_without_a_form(monkeypatch):
    model = new_model("DistMult", 100, 3, dim=50)
    with_form = chunk_size(model, 1 << 20)
    monkeypatch.setattr(type(model), "form", None)
    # Broadcasting makes [queries, |E|, D] tensors of four bytes a number.
    assert 1 <= chunk_size(model, 1 << 20) * 100 * 50 * 4 <= 1 << 20
    assert chunk_size(model, 1 << 20) < with_form


def test_no_more_queries_at_once_than_a_chunk():
    graph = random_graph(test=11)
    model = new_model("DistMult", 12, 3)
    asked, score_shared = [], model.score_shared
    model.score_shared = lambda side, anchor, relation, entities, *rest: (
        asked.append((len(anchor), len(entities)))
        or score_shared(side, anchor, relation, entities, *rest)
    )
    heard = []
    budget = 4 * 12 * SCORE_BYTES
    rank(
        model, Queries(graph, graph.test), budget=budget, progress=lambda *done: heard.append(done)
    )
    # The answers, then two parts of the entities: the tile is as square as it can be.
    assert asked == ([(6, 8)] * 3 + [(5, 8)] * 3) * 2
    assert heard == [(6, 22), (11, 22), (17, 22), (22, 22)]


@pytest.mark.parametrize("name", MODELS.names())
def test_a_ranking_stays_within_the_budget(name, tmp_path):
    graph = random_graph(entities=300, relations=1, train=100, test=500)
    model, budget = new_model(name, 300, 1, dim=2), 1 << 20
    rank(model, Queries(graph, graph.test), budget=budget)  # makes the filter index
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        rank(model, Queries(graph, graph.test), budget=budget)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event["name"] == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    peak = np.cumsum([event["args"]["Bytes"] for event in events]).max()
    # Next to the scores there are ids, queries and the entity table: a few numbers for each.
    assert 0.25 * budget < peak < 1.1 * budget


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", MODELS.names())
def test_a_diverged_model(name, wrong):
    graph = random_graph()
    model = new_model(name, 12, 3)
    with torch.no_grad():
        model.relation[int(graph.test[0, 1])] = wrong
    with pytest.raises(UserError, match="diverged"):
        evaluate(model, graph)


def test_wrong_questions():
    graph = random_graph(test=0)
    model = new_model("DistMult", 12, 3)
    with pytest.raises(UserError, match="test split of graph is empty"):
        evaluate(model, graph)
    with pytest.raises(UserError, match="unknown split 'tset'"):
        evaluate(model, graph, "tset")
    with pytest.raises(UserError, match=r"ties 'average'.*realistic"):
        evaluate(model, graph, "valid", ties="average")
