"""Why a triple is predicted: similar facts, paths and their confidence, influences."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.functional import softplus

from helpers import TINY, graph_of, graphs, model_for, new_model, random_graph
from nscaching import KnowledgeGraph, Run, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation import paths
from nscaching.evaluation.explain import facts_of, influences, similar_facts
from nscaching.evaluation.fact_losses import SmallModel, draw_rivals, entity_tables
from nscaching.evaluation.paths import Steps, path_kinds, paths_between
from nscaching.models import MODELS

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "influence.py"
FACTS = [
    ("Ada", "lives in", "Kiel"), ("Kiel", "in", "Germany"), ("Bo", "lives in", "Ulm"),
    ("Ulm", "in", "Germany"), ("Bo", "from", "Germany"), ("Cy", "lives in", "Lyon"),
    ("Lyon", "in", "France"), ("Cy", "from", "France"), ("Di", "lives in", "Lyon"),
]  # fmt: skip


def run_of(graph, name="ComplEx", **settings):
    model = model_for(graph, name, seed=1)
    return Run(graph, TrainConfig.from_dict({**TINY, "model": name, **settings}), model)


def slow_paths(graph, head, tail):
    """Walk all simple paths of up to three steps: (steps, entities)."""
    count, found = len(graph.relations), []
    edges = {(h, r, t) for h, r, t in graph.train.tolist()}
    edges |= {(t, r + count, h) for h, r, t in edges}

    def walk(steps, nodes):
        if steps and nodes[-1] == tail:
            found.append((tuple(steps), tuple(nodes)))
            return
        if len(steps) < 3:
            for a, step, b in edges:
                if a == nodes[-1] and b not in nodes:
                    walk([*steps, step], [*nodes, b])

    if head != tail:
        walk([], [head])
    return sorted(found)


def quick_paths(graph, head, tail):
    return sorted(
        (tuple(steps), tuple(nodes))
        for kinds, entities in paths_between(Steps(graph), head, tail)
        for steps, nodes in zip(kinds.tolist(), entities.tolist(), strict=True)
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs())
def test_paths_are_those_of_walking(graph):
    ids = range(len(graph.entities))
    for head, tail in itertools.islice(itertools.product(ids, ids), 12):
        assert quick_paths(graph, head, tail) == slow_paths(graph, head, tail)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(graphs())
def test_confidence_is_that_of_counting(graph):
    facts = {tuple(fact) for fact in graph.train.tolist()}
    ids = range(len(graph.entities))
    connected = {}
    for pair in itertools.product(ids, ids):
        for steps, _ in slow_paths(graph, *pair):
            connected.setdefault(steps, set()).add(pair)
    for head, relation, tail in graph.train[:3].tolist():
        expected = {}
        for steps, _ in slow_paths(graph, head, tail):
            others = connected[steps] - {(head, tail)}
            support = sum((x, relation, y) in facts for x, y in others)
            if support and steps != (relation,):
                expected[steps] = support, len(others)
        found = path_kinds(graph, head, relation, tail)
        assert {kind.steps: (kind.support, kind.pairs) for kind in found} == expected
        assert [kind.worth for kind in found] == sorted((k.worth for k in found), reverse=True)


def test_many_paths_are_drawn_and_many_starts_too(monkeypatch):
    graph = random_graph(entities=12, relations=2, train=120)
    every = path_kinds(graph, 0, 0, 1)
    assert all(kind.starts == kind.starts_in_all for kind in every)
    whole = quick_paths(graph, 0, 1)
    monkeypatch.setattr(paths, "MOST_PATHS", 30)
    some = quick_paths(graph, 0, 1)
    assert set(some) < set(whole)
    assert 0 < sum(len(steps) == 3 for steps, _ in some) <= 30
    monkeypatch.setattr(paths, "STARTS", 4)
    assert {kind.starts for kind in path_kinds(graph, 0, 0, 1)} == {4}
    monkeypatch.setattr(paths, "MOST_ROWS", 10)
    assert min(kind.starts for kind in path_kinds(graph, 0, 0, 1)) < 4


def test_a_rule_is_found_with_its_facts():
    run = run_of(KnowledgeGraph.from_triples(FACTS, split_seed=None))
    found = run.explain("Ada", "from", "Germany", top=3)
    path = found["paths"][0]
    assert path["steps"] == [
        {"relation": "lives in", "inverse": False}, {"relation": "in", "inverse": False}
    ]  # fmt: skip
    # Of Bo, Cy and Di, Di is from nowhere; Ada is the one asked about.
    assert (path["support"], path["pairs"], path["confidence"]) == (2, 3, 2 / 3)
    names = [tuple(fact[part] for part in ("head", "relation", "tail")) for fact in path["facts"]]
    assert names == [FACTS[0], FACTS[1]]
    assert found["known"] == ""
    assert run.explain("Bo", "from", "Germany")["known"] == "train"
    assert [fact["head"] for fact in found["similar"]] in (["Bo", "Cy"], ["Cy", "Bo"])
    values = [fact["influence"] for fact in found["facts"]]
    assert values == sorted(values, reverse=True)
    assert json.loads(json.dumps(found)) == found
    assert run.explain("Ada", "from", "Ada")["paths"] == []
    for wrong in (None, ["Germany"], ""):
        with pytest.raises(UserError, match="needs a whole triple: tail is missing"):
            run.explain("Ada", "from", wrong)


def test_similar_facts_are_those_of_near_vectors():
    graph = random_graph()
    run = run_of(graph)
    triple = graph.train[0]
    unit = torch.nn.functional.normalize(run.model.entity.detach(), dim=-1)
    near = {
        tuple(fact): float((unit[fact[0]] @ unit[triple[0]] + unit[fact[2]] @ unit[triple[2]]) / 2)
        for fact in graph.train.tolist()
        if fact[1] == triple[1] and fact != triple.tolist()
    }
    facts, values = similar_facts(run.model, graph, triple, 5)
    best = sorted(near.values(), reverse=True)[:5]
    assert values == pytest.approx(best, abs=1e-5)
    assert [near[tuple(fact)] for fact in facts.tolist()] == pytest.approx(best, abs=1e-5)


def plain_loss(small, fact, rivals, objective, margin=1.0):
    """Sum the losses of both queries of a fact, by scoring whole triples."""
    (head,), (relation,), (tail,) = small.columns(fact[None])
    positive, total = small.model.score(head, relation, tail), 0
    for side in Side:
        anchor, answer = side.query(head, tail)
        others = rivals[rivals != answer]
        heads, tails = side.query(anchor.expand(len(others)), others)
        negative = small.model.score(heads, relation.expand(len(others)), tails)
        weight = negative.softmax(0)
        if objective == "softmax":
            total = total - torch.cat([positive[None], negative]).log_softmax(0)[0]
        elif objective == "margin":
            total = total + (weight * (margin - positive + negative).relu()).sum()
        else:
            shift = margin if objective == "shifted" else 0
            total = (
                total + softplus(-positive - shift) + (weight * softplus(negative + shift)).sum()
            )
    return total


@pytest.mark.parametrize("name", MODELS.names())
@pytest.mark.parametrize("objective", ["softmax", "margin", "logistic", "shifted"])
def test_influence_is_a_product_of_gradients(name, objective):
    graph = random_graph(entities=9, train=25)
    run = run_of(graph, name, objective=objective, margin=1.0)
    triple = np.array([0, 1, 2], dtype=np.int32)
    facts = facts_of(graph, triple)
    found = influences(run, triple, facts)
    small = SmallModel.around(run.model, np.concatenate([facts, triple[None]]), torch.float64)
    tables = [table.requires_grad_() for table in small.model.parameters()]
    score = small.model.score(*small.columns(triple[None])).sum()
    up = torch.autograd.grad(score, tables, allow_unused=True)
    rivals = draw_rivals(small.model, torch.Generator().manual_seed(0))
    for value, fact in zip(found, facts, strict=True):
        loss = plain_loss(small, fact, rivals, objective)
        down = torch.autograd.grad(loss, tables, allow_unused=True)
        pairs = [(a, b) for a, b in zip(up, down, strict=True) if a is not None and b is not None]
        assert value == pytest.approx(-sum(float((a * b).sum()) for a, b in pairs), abs=1e-4)


def test_influence_agrees_with_retraining():
    spec = importlib.util.spec_from_file_location("influence", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    found = [value for _, value, _ in program.compared("ComplEx", slice(0, 3))]
    assert np.mean(found) > 0.6
    assert min(found) > 0.2


def test_a_copy_scores_as_the_model():
    graph = random_graph(entities=12)
    for name in MODELS.names():
        model = new_model(name, 12, 3)
        small = SmallModel.around(model, graph.train[:4], torch.float64)
        with torch.no_grad():
            expected = model.double().score(*torch.from_numpy(graph.train[:4].astype(int)).T)
            found = small.model.score(*small.columns(graph.train[:4]))
        assert torch.allclose(found, expected, atol=1e-6)
        assert set(entity_tables(model)) <= {"entity", "entity_projection"}


def test_a_model_with_other_parameters_is_refused():
    class Deep(type(new_model("DistMult"))):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.layer = torch.nn.Linear(7, 7)

    graph = random_graph(entities=9)
    run = run_of(graph)
    run.model = Deep(9, 3, 4)
    for table in run.model.parameters():
        torch.nn.init.ones_(table)
    with pytest.raises(UserError, match=r"Deep has more than vectors.*layer"):
        run.explain("e0", "r0", "e1")
    with pytest.raises(UserError, match=r"Deep has more than vectors.*layer"):
        run.extend([("new", "r0", "e1")])


def test_the_verb_explains_and_refuses(tmp_path, ask, capsys):
    facts = [("\x1b[31mRed", "r", "Blue"), *(("Red", "r", f"x{i}") for i in range(3))]
    facts += [("\x1b[31mRed", "s", "Blue"), ("Red", "s", "x1")]
    graph = KnowledgeGraph.from_triples(facts, split_seed=None)
    run = train(graph, TrainConfig.from_dict({**TINY, "validate_every": 0}))
    path = str(run.save(tmp_path / "run"))
    main(["explain", path, "--head", "Red", "--relation", "s", "--tail", "Blue"])
    shown = capsys.readouterr().out
    assert "not in the data" in shown
    assert "\x1b" not in shown
    found = ask("explain", path, "--head", "Red", "--relation", "s", "--tail", "x1")
    assert found["known"] == "train"
    assert [step["relation"] for step in found["paths"][0]["steps"]] == ["r"]
    for words, message in (
        (["--head", "Red", "--relation", "s"], "needs a whole triple: --tail is missing"),
        (["--head", "Red", "--relation", "s", "--tail", "Blu"], "unknown entity 'Blu'.*Blue"),
        (["--head", "Red", "--relation", "q", "--tail", "Blue"], "unknown relation 'q'; known: r"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["explain", path, *words])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert re.search(message, error)


def test_a_graph_of_one_triple_has_no_reasons():
    run = run_of(graph_of([(0, 0, 1)]))
    found = run.explain("e0", "r0", "e1")
    assert (found["similar"], found["paths"], found["facts"]) == ([], [], [])
    assert found["known"] == "train"
