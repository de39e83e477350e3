"""Relation prediction, entity classification, entity linking, neighbours: against slow twins."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import TINY, all_triples, graph_of, graphs, new_model, random_graph
from nscaching import KnowledgeGraph, Run, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.graph import Labelled
from nscaching.evaluation.candidates import classify_entities, evaluate_relations
from nscaching.evaluation.classify import labelled_pairs, link_entities, similarity
from nscaching.evaluation.predict import _nearness, neighbours
from nscaching.models import MODELS

plenty = settings(derandomize=True, deadline=None, max_examples=40)
every_model = pytest.mark.parametrize("name", MODELS.names())


def score(model, *triple):
    with torch.no_grad():
        return model.score(*(torch.tensor([i]) for i in triple)).item()


def rank(own, others):
    """Return the mean of the best and the worst rank."""
    return 1 + sum(s > own for s in others) + sum(s == own for s in others) / 2


def coarse(name, entities, relations):
    """Make a model of few different values, so that scores are often equal and rounding is none."""
    model = new_model(name, entities, relations, dim=2)
    with torch.no_grad():
        for table in model.parameters():
            table.round_()
    return model


# Relations.


def relation_ranks(model, graph, filtered=True):
    """Rank one by one."""
    known = all_triples(graph) if filtered else set()
    for h, r, t in graph.test.tolist():
        others = [k for k in range(model.relations) if k != r and (h, k, t) not in known]
        yield rank(score(model, h, r, t), [score(model, h, k, t) for k in others])


@given(graph=graphs(), name=st.sampled_from(["DistMult", "ComplEx"]), filtered=st.booleans())
@plenty
def test_relations_are_ranked_as_one_by_one(graph, name, filtered):
    model = coarse(name, len(graph.entities), len(graph.relations))
    expected = list(relation_ranks(model, graph, filtered))
    found = evaluate_relations(model, graph, filtered=filtered)
    assert found["mr"] == pytest.approx(np.mean(expected))
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(expected)))
    assert found["hits@1"] == pytest.approx(np.mean(np.array(expected) <= 1))
    assert found["candidates"] == len(graph.relations)


@every_model
def test_relations_with_any_model_and_little_memory(name):
    graph = random_graph(relations=7, train=100, test=30)
    model = new_model(name, 12, 7)
    expected = np.array(list(relation_ranks(model, graph)))
    heard = []
    whole = evaluate_relations(model, graph)
    found = evaluate_relations(model, graph, budget=1, progress=lambda *at: heard.append(at))
    assert found == whole
    assert heard == [(i, 30) for i in range(1, 31)]
    assert found["mr"] == expected.mean()
    for r, part in found["by_relation"].items():
        of = graph.test[:, 1] == graph.relations.index(r)
        assert part["triples"] == of.sum()
        assert part["mr"] == expected[of].mean()
    assert sum(part["triples"] for part in found["by_relation"].values()) == 30


def test_relations_that_cannot_be_ranked():
    model = new_model("TransE", 12, 3)
    with pytest.raises(UserError, match="test split of graph is empty"):
        evaluate_relations(model, random_graph(test=0))
    with pytest.raises(UserError, match="unknown way to rank ties"):
        evaluate_relations(model, random_graph(), ties="fair")
    with pytest.raises(UserError, match="unknown task 'x'; known: links, relations"):
        Run(random_graph(), None, model).evaluate(task="x")
    torch.nn.init.constant_(model.relation, float("nan"))
    with pytest.raises(UserError, match="diverged"):
        evaluate_relations(model, random_graph())


# Classes of entities.


@given(graph=graphs(), budget=st.sampled_from([1, 1 << 20]))
@plenty
def test_classes_are_ranked_as_one_by_one(graph, budget):
    model = coarse("DistMult", len(graph.entities), len(graph.relations))
    train = [(h, t) for h, r, t in graph.train.tolist() if r == 0]
    asked = [(h, t) for h, r, t in graph.test.tolist() if r == 0]
    classes = sorted({t for _, t in train})
    if len(classes) < 2 or not asked:
        with pytest.raises(UserError, match=r"relation 'r0' has (no|one)"):
            classify_entities(model, graph, 0)
        return
    known = all_triples(graph)
    by_size = sorted(classes, key=lambda c: -sum(t == c for _, t in train))
    ranks, common = [], []
    for h, t in asked:
        others = [c for c in classes if c != t and (h, 0, c) not in known]
        if t not in classes:
            ranks.append(len(classes) + 1)
            common.append(len(classes) + 1)
            continue
        ranks.append(rank(score(model, h, 0, t), [score(model, h, 0, c) for c in others]))
        before = by_size[: by_size.index(t)]
        common.append(1 + sum(c in others for c in before))
    found = classify_entities(model, graph, 0, budget=budget)
    assert found["accuracy"] == pytest.approx(np.mean(np.array(ranks) == 1))
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert found["majority"]["accuracy"] == pytest.approx(np.mean(np.array(common) == 1))
    assert found["majority"]["mrr"] == pytest.approx(np.mean(1 / np.array(common)))
    assert found["majority"]["class"] == f"e{by_size[0]}"
    assert found["classes"] == len(classes)
    assert found["triples_of_unseen_classes"] == sum(t not in classes for _, t in asked)
    for name, part in found["by_class"].items():
        assert part["triples"] == sum(f"e{t}" == name for _, t in asked)
        assert part["train"] == sum(f"e{t}" == name for _, t in train)


@every_model
def test_classes_with_any_model(name):
    graph = graph_of(
        [(i, 0, 10 + i % 3) for i in range(9)], test=[(9, 0, 10), (0, 0, 12)], entities=13
    )
    model = new_model(name, 13, 1)
    found = classify_entities(model, graph, 0)
    scores = [[score(model, h, 0, c) for c in (10, 11, 12)] for h in (9, 0)]
    first = rank(scores[0][0], scores[0][1:])
    second = rank(scores[1][2], scores[1][1:2])  # that 0 is of class 10 is known
    assert found["mrr"] == pytest.approx((1 / first + 1 / second) / 2)


# Entity linking.


def same_graph():
    """Make pairs of entities that are the same: 2k and 2k + 1, and a chain of three."""
    pairs = [(2 * k, 0, 2 * k + 1) for k in range(40)]
    facts = [(e, 1, 82 + e // 2 % 4) for e in range(80)]
    chain = [(80, 0, 81), (81, 0, 79)]
    return graph_of([*facts, *pairs[:20], *chain], pairs[20:30], pairs[30:], relations=2)


def test_negatives_are_not_the_same_by_way_of_others():
    graph = same_graph()
    for split in ("valid", "test"):
        made = labelled_pairs(graph, split, 0)
        assert made.triples[made.truth].tolist() == graph.split(split).tolist()
        assert (made.truth.sum(), (~made.truth).sum()) == (10, 10)
        for h, r, t in made.triples[~made.truth].tolist():
            assert r == 0
            assert h // 2 != t // 2
            assert not {h, t} <= {78, 79, 80, 81}
        again = labelled_pairs(graph, split, 0)
        assert np.array_equal(made.triples, again.triples)
    # Of two groups in training and one in test, only the other group serves.
    small = graph_of([(0, 0, 1), (1, 0, 2), (3, 0, 4)], test=[(2, 0, 0)])
    (false,) = labelled_pairs(small, "test", 0).triples[1:].tolist()
    assert false in ([3, 0, 0], [2, 0, 4])


@every_model
def test_linking_agrees_with_a_slow_twin(name):
    graph = same_graph()
    model = new_model(name, len(graph.entities), 2)
    found = link_entities(model, graph, 0)
    valid, asked = (labelled_pairs(graph, split, 0) for split in ("valid", "test"))
    rows = model.table().detach().double().numpy()

    def cosine(h, _, t):
        return rows[h] @ rows[t] / math.sqrt((rows[h] @ rows[h]) * (rows[t] @ rows[t]))

    for key, judge in (("by_score", lambda *ids: score(model, *ids)), ("by_similarity", cosine)):
        part = found[key]
        pairs = [
            [
                (judge(*ids), true)
                for ids, true in zip(some.triples.tolist(), some.truth, strict=True)
            ]
            for some in (valid, asked)
        ]
        right = [sum((s >= part["threshold"]) == true for s, true in each) for each in pairs]
        assert right[0] == max(
            sum((s >= cut) == true for s, true in pairs[0])
            for cut in [math.inf, *(s for s, _ in pairs[0])]
        )
        assert part["accuracy"] == right[1] / 20
        assert part["true_positives"] + part["false_negatives"] == found["true"] == 10
        assert part["true_negatives"] + part["false_positives"] == 10
    assert found["negatives"] == "made by seed 2019"


def test_equal_vectors_are_linked():
    graph = same_graph()
    model = new_model("DistMult", len(graph.entities), 2, dim=16)
    with torch.no_grad():
        model.entity[1:80:2] = model.entity[0:80:2] * 3
    assert similarity(model, graph.test).tolist() == pytest.approx([1] * 10)
    assert np.array_equal(similarity(model, graph.test, piece=3), similarity(model, graph.test))
    assert link_entities(model, graph, 0)["by_similarity"]["accuracy"] == 1


def test_pairs_of_the_data_set_come_first():
    graph = same_graph()
    rows = np.array([[0, 0, 1], [0, 0, 3], [4, 1, 5]], dtype=np.int32)
    graph.labelled["test"] = Labelled(rows, np.array([True, False, True]), "test_neg.txt")
    found = link_entities(new_model("TransE", len(graph.entities), 2), graph, 0)
    assert (found["triples"], found["true"], found["negatives"]) == (2, 1, "test_neg.txt")


def test_too_few_pairs():
    graph = same_graph()
    model = new_model("TransE", len(graph.entities), 2)
    message = "too few triples of 'r1' in the valid split: 0 true and 0 false"
    with pytest.raises(UserError, match=message):
        link_entities(model, graph, 1)
    one_group = graph_of([(0, 0, 1), (1, 0, 2)], [(0, 0, 2)], [(2, 0, 0)])
    with pytest.raises(UserError, match="1 true and 0 false ones; linking needs both"):
        link_entities(new_model("TransE", 3, 1), one_group, 0)


# Neighbours.


@every_model
def test_neighbours_agree_with_a_slow_twin(name):
    graph = random_graph()
    model = new_model(name, 12, 3)
    rows = model.table().detach().double().numpy()
    for by, near in (
        ("cosine", lambda a, b: a @ b / math.sqrt((a @ a) * (b @ b))),
        ("distance", lambda a, b: math.sqrt(((a - b) ** 2).sum())),
    ):
        others = {i: near(rows[4], rows[i]) for i in range(12) if i != 4}
        order = sorted(others, key=others.get, reverse=by == "cosine")
        found = neighbours(model, graph, "e4", top=99, by=by)["neighbours"]
        assert [each["name"] for each in found] == [f"e{i}" for i in order]
        assert [each[by] for each in found] == pytest.approx([others[i] for i in order])
        assert neighbours(model, graph, "e4", 3, by)["neighbours"] == found[:3]
        assert np.array_equal(_nearness(model, 4, by, piece=5), _nearness(model, 4, by))


def test_equal_vectors_are_neighbours_in_the_order_of_ids():
    graph = random_graph(entities=6, relations=2, train=10, valid=2, test=2)
    model = new_model("DistMult", 6, 2)
    torch.nn.init.ones_(model.entity)
    names = [each["name"] for each in neighbours(model, graph, "e2")["neighbours"]]
    assert names == ["e0", "e1", "e3", "e4", "e5"]


def test_neighbours_that_cannot_be_found():
    graph, model = random_graph(), new_model("TransE", 12, 3)
    with pytest.raises(UserError, match="unknown entity 'x'"):
        neighbours(model, graph, "x")
    with pytest.raises(UserError, match="top must be at least 1, not 0"):
        neighbours(model, graph, "e1", 0)
    with pytest.raises(UserError, match="unknown value of by: 'angle'; known: cosine, distance"):
        neighbours(model, graph, "e1", by="angle")
    torch.nn.init.constant_(model.entity, float("inf"))
    with pytest.raises(UserError, match="diverged"):
        neighbours(model, graph, "e1")


# As a user asks.


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """Train once on the graph of pairs, with labels."""
    graph = same_graph()
    graph.labels = {"e0": "Nought"}
    return train(graph, **TINY, out=tmp_path_factory.mktemp("runs") / "linked")


@pytest.fixture
def ask(capsys):
    """Return a function that runs the command line and returns its JSON, or what it prints."""

    def run(*words, as_json=True):
        capsys.readouterr()
        main([*map(str, words), *(["--json"] if as_json else [])])
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out) if as_json else out

    return run


def test_the_command_line_says_what_python_says(linked, ask):
    path, run = linked.path, {"run": str(linked.path)}
    relations = linked.evaluate(task="relations")
    assert ask("evaluate", path, "--task", "relations") == run | relations
    assert f"{relations['mrr']:.4f}" in ask("evaluate", path, "--task", "relations", as_json=False)
    raw = ["--task", "relations", "--raw", "--ties", "optimistic", "--split", "valid"]
    options = {"task": "relations", "filtered": False, "ties": "optimistic"}
    assert ask("evaluate", path, *raw) == run | linked.evaluate("valid", **options)
    assert ask("evaluate", path, "--task", "links") == run | linked.evaluate()

    words = ["classify", path, "--task", "linking", "--relation", "R0"]  # in any case
    linking = linked.classify(task="linking", relation="r0")
    assert ask(*words) == run | linking
    out = ask(*words, as_json=False)
    assert all(f"{linking[by]['accuracy']:.4f}" in out for by in ("by_score", "by_similarity"))

    near = linked.neighbours("e0", 3, "distance")
    assert ask("neighbours", path, "nought", "--top", 3, "--by", "distance") == near
    assert near["label"] == "Nought"
    out = ask("neighbours", path, "e1", "--top", 99, as_json=False)
    assert "nearest to e1" in out
    assert ". Nought (e0) " in out


def test_the_embedded_data_set_has_classes(tmp_path, ask):
    settings = {"epochs": 1, "dim": 4, "threads": 1, "sampler": "uniform", "validate_every": 0}
    graph = KnowledgeGraph.load("world")
    train(graph, TrainConfig.from_dict(settings), out=tmp_path / "run")
    words = ["classify", tmp_path / "run", "--task", "entities", "--relation", "in_subregion"]
    found = ask(*words)
    assert found == {"run": str(tmp_path / "run")} | Run.load(tmp_path / "run").classify(
        task="entities", relation="in_subregion"
    )
    assert (found["classes"], found["triples"]) == (17, 240)
    assert found["majority"]["class"] == "Sub-Saharan Africa"
    assert found["majority"]["accuracy"] == 0.125
    out = ask(*words, as_json=False)
    assert "baseline: commonest first, Sub-Saharan Africa" in out
    assert "more classes; --json has them all" in out
    unseen = ask(*words[:-1], "capital", as_json=False)
    assert "12 triples are of classes that training does not have" in unseen


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classify", "--task", "entities"], "--task entities needs a --relation, one of r0, r1"),
        (["classify", "--task", "linking"], "--task linking needs a --relation"),
        (["classify", "--relation", "r0"], "--relation 'r0' needs --task entities or linking"),
        (["classify", "--task", "linking", "--relation", "x"], "unknown relation 'x'; known: r0"),
        (["classify", "--task", "entities", "--relation", "r1"], "has no triples in the test"),
        (["classify", "--task", "linking", "--relation", "r1"], "too few triples of 'r1'"),
        (["classify", "--task", "nonsense"], "--task"),
        (["neighbours", "nobody"], "unknown entity 'nobody'"),
        (["neighbours", "e0", "--top", "0"], "top must be at least 1, not 0"),
        (["neighbours"], "NAME"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(linked, capsys, words, message):
    verb, *rest = words
    with pytest.raises(SystemExit) as stop:
        main([verb, str(linked.path), *rest])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_an_unknown_task_in_python(linked):
    with pytest.raises(UserError, match="unknown task 'x'; known: triples, entities, linking"):
        linked.classify(task="x")
