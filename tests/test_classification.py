"""Triplet classification: thresholds against brute force, made negatives, the benchmark's files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers import all_triples, graph_of, graphs, model_for, new_model, random_graph
from nscaching import KnowledgeGraph, UserError
from nscaching.data.graph import Labelled
from nscaching.evaluation.classify import classify, fit_thresholds, score_triples
from nscaching.evaluation.labelled import NEGATIVE_SEED, labelled_triples
from nscaching.kernels.cpu.threads import torch_settings

plenty = settings(derandomize=True, deadline=None, max_examples=50)

# Few different values, so that scores are often equal; some with no number in between.
NEIGHBOURS = [1.0, math.nextafter(1.0, 2), math.nextafter(math.nextafter(1.0, 2), 2)]
values = st.sampled_from([-2.0, -1.5, 0.0, *NEIGHBOURS, 7.25]) | st.floats(
    -1e6, 1e6, allow_subnormal=False
)
judged = st.lists(st.tuples(values, st.booleans(), st.integers(0, 2)), min_size=1, max_size=14)


def best_count(pairs):
    """Try every cut: the most right answers to "score ≥ cut" over (score, truth) pairs."""
    cuts = [math.inf, *(score for score, _ in pairs)]
    return max(sum((score >= cut) == truth for score, truth in pairs) for cut in cuts)


def right(pairs, threshold):
    return sum((score >= threshold) == truth for score, truth in pairs)


@given(judged)
@example([(NEIGHBOURS[1], True, 0), (NEIGHBOURS[0], False, 0)])
@example([(NEIGHBOURS[2], True, 0), (NEIGHBOURS[1], False, 0)])
@plenty
def test_thresholds_are_the_best_there_are(triples):
    scores, truth, relations = map(np.array, zip(*triples, strict=True))
    thresholds = fit_thresholds(scores, truth, relations)
    assert set(thresholds.by_relation) == set(relations.tolist())
    for relation, threshold in thresholds.by_relation.items():
        pairs = [(score, true) for score, true, its in triples if its == relation]
        assert math.isfinite(threshold)
        assert right(pairs, threshold) == best_count(pairs)
    pairs = [(score, true) for score, true, _ in triples]
    assert right(pairs, thresholds.fallback) == best_count(pairs)


def test_a_threshold_above_zero_when_subnormal_numbers_are_zero():
    with torch_settings(0):  # as training does
        thresholds = fit_thresholds(np.array([0.0]), np.array([False]), np.array([0]))
        assert not np.array([0.0]) >= thresholds.of(np.array([0]))


def test_relations_without_validation_have_the_fallback():
    scores = np.array([3.0, 1.0, 10.0, 6.0])
    truth = np.array([True, False, True, False])
    thresholds = fit_thresholds(scores, truth, np.array([0, 0, 2, 2]))
    assert thresholds.by_relation == {0: 2.0, 2: 8.0}
    assert thresholds.of(np.array([2, 1, 0, 5])).tolist() == [8.0, 8.0, 2.0, 8.0]
    assert thresholds.fallback == 8.0


@given(graph=graphs(), split=st.sampled_from(["valid", "test"]))
@plenty
def test_made_negatives(graph, split):
    made, again = labelled_triples(graph, split), labelled_triples(graph, split)
    assert np.array_equal(made.triples, again.triples)
    assert np.array_equal(made.truth, again.truth)
    positives = graph.split(split).tolist()
    assert made.triples[made.truth].tolist() == positives
    known, train = all_triples(graph), all_triples(graph, ["train"])
    everyone = range(len(graph.entities))
    left = list(positives)
    for h, r, t in made.triples[~made.truth].tolist():
        assert (h, r, t) not in known
        # It belongs to the next positive that differs from it on one side.
        while not (left[0][1] == r and (left[0][0] == h) != (left[0][2] == t)):
            left.pop(0)
        head, _, tail = left.pop(0)
        # An entity that stands there in training, unless they all make known triples.
        side = 0 if tail == t else 2
        seen = {triple[side] for triple in train if triple[1] == r}
        new = {e for e in everyone if ((e, r, tail) if side == 0 else (head, r, e)) not in known}
        assert (h, r, t)[side] in (seen & new or new)


def plain_negatives(graph, split):
    """Make the same negatives with sets of arrays, for every triple anew."""
    random = np.random.default_rng(NEGATIVE_SEED)
    every = np.concatenate([graph.split(s) for s in ("train", "valid", "test")])
    found = []
    for triple in graph.split(split):
        column = 0 if random.random() < 0.5 else 2
        other = 2 - column
        same = (every[:, 1] == triple[1]) & (every[:, other] == triple[other])
        seen = graph.train[graph.train[:, 1] == triple[1], column]
        left = np.setdiff1d(seen, every[same, column])
        if not len(left):
            left = np.setdiff1d(np.arange(len(graph.entities)), every[same, column])
        if len(left):
            found.append(triple.tolist())
            found[-1][column] = int(random.choice(left))
    return found


@given(graph=graphs(), split=st.sampled_from(["train", "valid", "test"]))
@plenty
def test_made_negatives_are_those_of_the_plain_way(graph, split):
    made = labelled_triples(graph, split)
    assert made.triples[~made.truth].tolist() == plain_negatives(graph, split)


def test_each_triple_has_a_negative_of_its_own():
    graph = random_graph(entities=30, relations=2, train=60, valid=100, test=200)
    made = labelled_triples(graph, "test")
    assert (made.truth.sum(), (~made.truth).sum()) == (200, 200)
    positive, negative = graph.test, made.triples[~made.truth]
    changed = positive != negative
    assert not changed[:, 1].any()
    assert (changed.sum(1) == 1).all()
    assert 60 < changed[:, 0].sum() < 140  # heads and tails alike


def test_a_complete_graph_has_no_negatives():
    full = [(h, 0, t) for h in range(3) for t in range(3)]
    graph = graph_of(full, full[:4], full[4:])
    assert labelled_triples(graph, "test").truth.tolist() == [True] * 5
    report = classify(new_model("TransE", 3, 1), graph, "valid")
    assert (report["triples"], report["accuracy"]) == (4, 1.0)  # all true, the lowest score too


def test_report_agrees_with_a_plain_twin():
    valid = [(h, r, (h + r + 1) % 12) for h in range(12) for r in range(2)]
    test = [(h, r, (h + r + 3) % 12) for h in range(12) for r in range(3)]
    graph = graph_of([(0, 0, 1), (5, 1, 2), (3, 2, 3)], valid, test)
    model = new_model("TransE", 12, 3, seed=4)
    report = classify(model, graph)
    made = {split: labelled_triples(graph, split) for split in ("valid", "test")}

    def pairs(split, relation=None):
        part = made[split]
        return [
            (model.score(*map(torch.tensor, triple)).item(), true)
            for triple, true in zip(part.triples.tolist(), part.truth.tolist(), strict=True)
            if relation in (None, triple[1])
        ]

    whole = 0
    for r, name in enumerate(graph.relations):
        part = report["by_relation"][name]
        fitted = pairs("valid", r) or pairs("valid")
        assert right(fitted, part["threshold"]) == best_count(fitted)
        assert part["triples"] == len(pairs("test", r))
        assert part["accuracy"] == right(pairs("test", r), part["threshold"]) / part["triples"]
        whole += right(pairs("test", r), part["threshold"])
    assert report["by_relation"]["r2"]["threshold"] == report["fallback_threshold"]
    assert report["relations_on_fallback"] == 1
    assert report["triples"] == len(made["test"].truth) == 72
    assert report["accuracy"] == whole / 72
    assert report["true_positives"] + report["true_negatives"] == whole
    assert report["true_positives"] + report["false_negatives"] == 36
    assert report["true_negatives"] + report["false_positives"] == 36


def test_a_model_that_knows_the_truth():
    graph = random_graph(entities=10, relations=2, train=30, valid=20, test=20)
    model = new_model("DistMult", 10, 2)
    known = all_triples(graph)
    model.score = lambda *ids: torch.tensor(
        [float(triple in known) for triple in zip(*(i.tolist() for i in ids), strict=True)]
    )
    report = classify(model, graph)
    assert report["accuracy"] == 1
    assert (report["true_positives"], report["true_negatives"]) == (20, 20)


def test_scores_piece_by_piece(monkeypatch):
    graph = random_graph()
    model = new_model("ComplEx", 12, 3)
    whole = score_triples(model, graph.train)
    assert whole.shape == (40,)
    assert whole.dtype == np.float64
    monkeypatch.setattr("nscaching.evaluation.ranking.PIECE", 7)
    assert np.array_equal(score_triples(model, graph.train), whole)
    assert score_triples(model, graph.train[:0]).shape == (0,)


def test_labels_of_the_data_set_come_first():
    graph = random_graph()
    rows = graph.test[:3].copy()
    rows[1] = next((h, 0, 0) for h in range(12) if (h, 0, 0) not in all_triples(graph))
    graph.labelled["test"] = Labelled(rows, np.array([True, False, True]), "test_neg.txt")
    report = classify(new_model("TransE", 12, 3), graph)
    assert (report["triples"], report["negatives"]) == (3, "test_neg.txt")
    graph.labelled["test"] = Labelled(rows[:0], np.empty(0, dtype=bool), "test_neg.txt")
    assert classify(new_model("TransE", 12, 3), graph)["triples"] == 16  # none in the file


def test_what_cannot_be_classified():
    graph = random_graph(valid=0)
    model = new_model("TransE", 12, 3)
    with pytest.raises(UserError, match="valid split of graph is empty"):
        classify(model, graph)
    with pytest.raises(UserError, match="unknown split"):
        classify(model, random_graph(), "tset")
    torch.nn.init.constant_(model.relation, float("nan"))
    with pytest.raises(UserError, match="diverged"):
        classify(model, random_graph())


def test_files_of_the_benchmark(mirror, monkeypatch):
    monkeypatch.setenv("NSCACHING_MIRROR", str(mirror))
    graph = KnowledgeGraph.load("wn18rr")
    model = model_for(graph, "TransE")
    for split in ("valid", "test"):
        lines = (mirror / "openke" / "WN18RR" / f"{split}_neg.txt").read_text().splitlines()
        rows = [list(map(int, line.split())) for line in lines]
        report = classify(model, graph, split)
        assert report["triples"] == len(rows)
        assert report["negatives"] == f"{split}_neg.txt"
        assert report["true_positives"] + report["false_negatives"] == sum(
            row[3] == 1 for row in rows
        )
        assert sum(part["triples"] for part in report["by_relation"].values()) == len(rows)
        found = labelled_triples(graph, split)
        assert found.triples[:, [0, 2, 1]].tolist() == [row[:3] for row in rows]
    # At the best thresholds, not even a random model is worse than calling all the same.
    assert classify(model, graph, "valid")["accuracy"] >= 0.5
