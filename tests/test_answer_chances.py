"""How often the best answers are right: the fit, its evidence, and what predictions show."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from helpers import all_triples, graph_of, new_model, random_graph
from nscaching import Run
from nscaching.data.index import Side
from nscaching.data.types import RelationType
from nscaching.evaluation.calibrate_answers import Judged, fit_chances, judged_answers
from nscaching.evaluation.calibration import logistic
from nscaching.evaluation.logistic_fit import most_likely
from nscaching.evaluation.reliability import calibration_error, evaluate_calibration
from nscaching.evaluation.shortlist import Evidence
from nscaching.evaluation.torch_scores import TorchScores

PARTS = ("head", "relation", "tail")


@pytest.fixture(scope="module")
def run():
    graph = random_graph(entities=12, relations=4, train=90, valid=80, test=20)
    return Run(graph, None, new_model("DistMult", 12, 4, seed=5))


# The regression.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("groups", [0, 1, 7])
def test_weights_and_offsets_are_the_most_likely_ones(seed, ridge, groups):
    random = np.random.default_rng(seed)
    parts = random.normal(size=(80, 2)) * [1, 5] + [0, 3]
    target = random.random(80).round(seed % 2)  # shares, or 0 and 1
    group = random.integers(groups, size=80) if groups else None

    def loss(found):
        weights, offsets = found[:3], found[3:]
        odds = weights[0] + parts @ weights[1:] + (0 if group is None else offsets[group])
        squares = (weights[1:] ** 2).sum() + (offsets**2).sum()
        return (np.logaddexp(0, odds) - target * odds).sum() + ridge * squares / 2

    best = optimize.minimize(loss, np.zeros(3 + groups), method="BFGS", options={"gtol": 1e-7}).x
    weights, offsets = most_likely(parts, target, group, ridge)
    assert weights == pytest.approx(best[:3], abs=1e-4)
    assert offsets == pytest.approx(best[3:] if groups else [0.0], abs=1e-4)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_perfect_sign_of_truth_has_finite_weights(scale):
    parts = np.linspace(-1, 1, 20)[:, np.newaxis] * scale
    weights, _ = most_likely(parts, (parts[:, 0] > 0).astype(float), ridge=1.0)
    assert np.isfinite(weights).all()
    assert weights[1] > 0


# The chances.


def answers_of(chance, queries=4000, relations=3, seed=0):
    """Draw answers of random evidence, right with the chance of their evidence and odds."""
    random = np.random.default_rng(seed)
    size = 5 * queries
    evidence = Evidence(
        random.normal(size=size), random.integers(relations, size=size).astype(np.int32),
        np.log(np.tile(np.arange(1, 6), queries)), -random.exponential(3, size=size),
    )  # fmt: skip
    odds = 2 * evidence.score - 1
    right = random.random(size) < chance(odds, evidence)
    return odds, Judged(evidence, right, queries)


def known_chance(odds, evidence):
    shift = np.array([-1.0, 0.0, 2.0])[evidence.relation]
    return logistic(-1 + shift + 0.4 * odds - 1.5 * evidence.log_rank + 0.3 * evidence.log_share)


def test_known_chances_are_found():
    odds, judged = answers_of(known_chance)
    found = fit_chances(odds, judged)
    weights = found.odds, found.log_rank, found.log_share
    assert weights == pytest.approx((0.4, -1.5, 0.3), abs=0.08)
    fresh, others = answers_of(known_chance, seed=1)
    chances = found.probabilities(fresh, others.evidence)
    assert np.abs(chances - known_chance(fresh, others.evidence)).max() < 0.05
    assert calibration_error(chances, others.right, np.ones(len(chances))) < 0.015


def test_evidence_that_speaks_the_wrong_way_is_not_used():
    def reverse(odds, evidence):
        return logistic(-0.4 * odds - 1.5 * evidence.log_rank - 1)

    odds, judged = answers_of(reverse)
    found = fit_chances(odds, judged)
    assert found.odds == 0
    assert found.log_rank < -1
    assert found.probabilities(odds, judged.evidence).mean() == pytest.approx(judged.right.mean())
    unseen = judged.evidence._replace(relation=np.full(len(odds), 9, np.int32))
    assert np.isfinite(found.probabilities(odds, unseen)).all()


# What is judged, and what is shown.


def plain_answers(run, split, gap):
    """Return score, relation, log rank, log share and truth of the best answers, one by one."""
    graph, rows = run.graph, []
    of_split = {tuple(t) for t in graph.split(split).tolist()}
    others = {tuple(t) for s in ("train", "valid", "test") if s != split
              for t in graph.split(s).tolist()}  # fmt: skip
    for query in sorted({(*t[:gap], 0, *t[gap + 1 :]) for t in of_split}):

        def triple(answer, query=query):
            return (*query[:gap], answer, *query[gap + 1 :])

        count = len(graph.relations if gap == 1 else graph.entities)
        loops = gap == 1 or RelationType.of(graph.train, query[1]).may_loop
        left = [a for a in range(count) if triple(a) not in others]
        left = [a for a in left if loops or triple(a)[0] != triple(a)[2]]
        scores = dict(zip(left, run.score(np.array([triple(a) for a in left])), strict=True))
        total = np.log(sum(np.exp(list(scores.values()))))
        side = Side.HEAD if gap == 0 else Side.TAIL
        kind = RelationType.of(graph.train, query[1])
        seen = kind.entities(side).tolist() if gap != 1 and kind.is_closed(side) else left
        best = sorted(left, key=lambda a: (a not in seen, -scores[a]))[:10]
        for rank, answer in enumerate(best, 1):
            relation, score = triple(answer)[1], scores[answer]
            right = triple(answer) in of_split
            rows.append((score, relation, np.log(rank), score - total, right))
    return np.array(rows).T


@pytest.mark.parametrize("gap", range(3))
@pytest.mark.parametrize("split", ["valid", "test"])
def test_answers_are_judged_as_if_the_split_were_not_known(run, split, gap):
    judged = judged_answers(TorchScores(run.model), run.graph, split, gap)
    got = np.array([*judged.evidence, judged.right])
    expected = plain_answers(run, split, gap)
    for rows in (got, expected):  # in any order
        rows[:] = rows[:, np.lexsort(rows.round(4))]
    assert got == pytest.approx(expected, abs=1e-5)
    assert 0 < judged.right.mean() < 1


@pytest.mark.parametrize("gap", range(3))
def test_a_prediction_shows_the_chance_of_its_answer(run, gap):
    fitted = run.calibrated().answers[gap]
    asked = {"head": "e3", "relation": "r1", "tail": "e5"} | {PARTS[gap]: None}
    (hidden,) = run.predict(**asked, top=99).queries
    (marked,) = run.predict(**asked, top=99, known="mark").queries
    assert hidden["prior"] is None
    assert hidden["fitted_on_queries"] == fitted.queries
    chances = {a["name"]: a["probability"] for a in marked["answers"]}
    for answer in hidden["answers"]:  # known answers do not count, shown or not
        assert chances[answer["name"]] == pytest.approx(answer["probability"])
    scores = np.array([a["score"] for a in hidden["answers"]])
    ids = {name: i for i, name in enumerate(run.graph.relations)}
    relation = [ids[a["name"]] if gap == 1 else 1 for a in hidden["answers"]]
    odds = run.calibrated().log_odds(scores, np.array(relation))
    share = scores - np.log(np.exp(scores).sum())
    line = fitted.constant + fitted.odds * odds + fitted.log_share * share
    line += fitted.log_rank * np.log(np.arange(1, len(scores) + 1))
    line += [fitted.by_relation.get(r, 0.0) for r in relation]
    got = [a["probability"] for a in hidden["answers"]]
    assert got == pytest.approx(list(1 / (1 + np.exp(-line))), abs=1e-6)


def test_too_few_right_answers_leave_the_probabilities_of_triples():
    graph = random_graph(entities=12, relations=4, train=90, valid=3, test=3)
    run = Run(graph, None, new_model("DistMult", 12, 4, seed=5))
    assert run.calibrated().answers == {}
    (got,) = run.predict("e3", "r1").queries
    assert got["prior"] == run.calibrated().prior
    triples = [["e3", "r1", answer["name"]] for answer in got["answers"]]
    chances = [answer["probability"] for answer in got["answers"]]
    assert chances == pytest.approx(run.probabilities(triples).tolist(), abs=1e-6)
    assert evaluate_calibration(run.model, graph, run.calibrated())["answers"] is None


def test_where_every_answer_is_known():
    """No unknown candidate is left to compare with."""
    graph = graph_of([(0, 0, 0), (0, 0, 1), (1, 0, 0)], valid=[(1, 0, 1)], entities=2)
    run = Run(graph, None, new_model("DistMult", 2, 1, seed=1))
    assert len(all_triples(graph)) == 4
    assert [a["known"] for a in run.predict("e0", "r0", known="mark")] == ["train", "train"]
    assert run.predict("e0", "r0") == []


def test_an_evaluation_compares_the_chances_with_the_truth(run):
    report = evaluate_calibration(run.model, run.graph, run.calibrated(), "test")["answers"]
    parts = [plain_answers(run, "test", gap) for gap in (0, 2)]
    assert report["answers"] == sum(part.shape[1] for part in parts)
    right = np.concatenate([part[4] for part in parts])
    assert report["share"] == pytest.approx(right.mean())
    best = np.concatenate([part[2] for part in parts]) == 0
    assert report["best"]["share"] == pytest.approx(right[best].mean())
    assert 0 <= report["expected_calibration_error"] <= 1
