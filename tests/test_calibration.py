"""Probabilities: fits against independent ones, known chances, extremes, prior, measures."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from helpers import graph_of, new_model, random_graph
from nscaching import Run, UserError
from nscaching.evaluation.calibrate import (
    LEAST,
    NO_CURVE,
    calibrate,
    fit_calibration,
    fit_curve,
    fit_sigmoid,
    pool_adjacent_violators,
)
from nscaching.evaluation.calibration import Calibration, Sigmoid, logistic, logit
from nscaching.evaluation.classify import classify, score_triples
from nscaching.evaluation.labelled import labelled_triples
from nscaching.evaluation.reliability import calibration_error, evaluate_calibration, reliability

plenty = settings(derandomize=True, deadline=None, max_examples=60)

HUGE = [0.0, 5e-324, 1e-300, 1.0, math.nextafter(1.0, 2), -7.5, 1e16, 1e300, -1.7e308, 1.7e308]
values = st.sampled_from(HUGE) | st.floats(-100, 100)
judged = st.lists(st.tuples(values, st.booleans(), st.integers(0, 2)), min_size=2, max_size=60)


def made(seed, count, chance, relations=1):
    """Draw scores, truth values of a known chance, and relations."""
    random = np.random.default_rng(seed)
    relation = random.integers(relations, size=count).astype(np.int32)
    scores = random.normal(0, 2, count)
    return scores, random.random(count) < chance(scores, relation), relation


# The fits.


def best_sigmoid(scores, truth):
    """Minimise the same loss by a general program, without gradients of ours."""
    yes, no = truth.sum(), (~truth).sum()
    target = np.where(truth, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(line):
        odds = line[0] * scores + line[1]
        return (np.logaddexp(0, odds) - target * odds).sum()

    tight = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    return optimize.minimize(loss, [0.0, 0.0], method="Nelder-Mead", options=tight).x


@pytest.mark.parametrize("seed", range(6))
def test_a_sigmoid_is_the_most_likely_one(seed):
    slope, offset = 0.3 + seed / 3, seed - 2
    scores, truth, _ = made(seed, 60 + 40 * seed, lambda s, r: logistic(slope * s + offset))
    found = fit_sigmoid(scores, truth)
    assert found == pytest.approx(best_sigmoid(scores, truth), abs=1e-4)
    moved = fit_sigmoid(scores * 1e-6 + 3.0, truth)  # the unit and the zero of scores do not count
    assert moved.slope * 1e-6 == pytest.approx(found.slope, rel=1e-4)


def test_scores_that_tell_truth_perfectly_have_a_finite_sigmoid():
    scores = np.repeat([-3.0, 3.0], 3)
    found = fit_sigmoid(scores, scores > 0)
    chances = logistic(found.slope * scores + found.offset)
    assert chances == pytest.approx([0.2] * 3 + [0.8] * 3)  # Platt's targets


def test_scores_that_are_no_sign_of_truth():
    truth = np.array([True, True, False, False, False, False])
    flat = Sigmoid(0.0, logit((2 * 3 / 4 + 4 / 6) / 6))
    for scores in (np.arange(6.0), np.full(6, 2.5)):  # higher is worse; all equal
        assert fit_sigmoid(scores, truth) == pytest.approx(flat)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=14))
@plenty
def test_pooled_levels_are_the_isotonic_regression(pairs):
    yes, no = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    weights = yes + no
    values, places = yes / weights, np.sqrt(np.arange(len(yes)))

    def mean(low, high):
        return yes[low:high].sum() / weights[low:high].sum()

    ends = range(len(values))
    brute = [
        max(min(mean(low, high + 1) for high in ends if high >= i) for low in range(i + 1))
        for i in ends
    ]
    theirs = optimize.isotonic_regression(values, weights=weights).x
    level, where = pool_adjacent_violators(yes, weights, places)
    assert (np.diff(level) > 0).all()
    assert (np.diff(where) > 0).all()
    block = np.searchsorted(level, np.array(brute) - 1e-9)
    assert level[block] == pytest.approx(brute)
    assert level[block] == pytest.approx(theirs)
    for i in range(len(level)):
        inside = block == i
        assert where[i] == pytest.approx(np.average(places[inside], weights=weights[inside]))


def test_the_ends_of_a_curve_are_neither_0_nor_1():
    odds = np.repeat([-2.0, 3.0], 50)
    where, level = fit_curve(odds, odds > 0)
    assert where.tolist() == pytest.approx([-2, 3])
    assert logistic(level) == pytest.approx([1 / 51, 50 / 51])


# What comes out.


def known_chances(shape):
    lines = [(1.0, 0.0), (3.0, 2.0), (0.2, -1.0)]

    def chance(scores, relations):
        slope, offset = np.array(lines)[relations].T
        return shape(slope * scores + offset)

    return chance


def capped(odds):
    """Be no sigmoid: some triples are never certain."""
    return np.clip(0.5 + 0.25 * odds, 0.1, 0.7)


# One curve bends all relations: chances that are no sigmoid are met on average, not in each one.
@pytest.mark.parametrize(("shape", "near"), [(logistic, 0.025), (capped, 0.05)])
def test_known_probabilities_are_found(shape, near):
    chance = known_chances(shape)
    fitted = fit_calibration(*made(1, 12_000, chance, 3), "made")
    assert set(fitted.by_relation) == {0, 1, 2}
    scores, truth, relations = made(2, 12_000, chance, 3)
    found = fitted.probabilities(scores, relations)
    assert np.abs(found - chance(scores, relations)).mean() < near
    error = calibration_error(found, truth, np.ones(len(truth)))
    assert error < 0.02
    straight = dataclasses.replace(fitted, curve=NO_CURVE).probabilities(scores, relations)
    together = dataclasses.replace(fitted, by_relation={}).probabilities(scores, relations)
    right = chance(scores, relations)
    assert np.abs(together - right).mean() > 1.5 * np.abs(found - right).mean()
    if shape is capped:
        assert calibration_error(straight, truth, np.ones(len(truth))) > 2 * error


def test_few_triples_of_a_relation_take_the_curve_of_all():
    scores, truth, relations = made(3, 400, known_chances(logistic), 3)
    few = np.concatenate([np.flatnonzero(truth)[: LEAST - 1], np.flatnonzero(~truth)[:30]])
    relations[:] = 0
    relations[few] = 1
    fitted = fit_calibration(scores, truth, relations, "made")
    assert set(fitted.by_relation) == {0}
    assert fitted.everywhere == fit_sigmoid(scores, truth)
    asked = np.linspace(-5, 5, 9)
    unseen = fitted.probabilities(asked, np.full(9, 7, np.int32))
    assert np.array_equal(fitted.probabilities(asked, np.ones(9, np.int32)), unseen)
    relations[np.flatnonzero(truth & (relations == 0))[0]] = 1  # one more
    fitted = fit_calibration(scores, truth, relations, "made")
    assert set(fitted.by_relation) == {0, 1}
    assert not len(fitted.curve[0])  # 400 triples are too few for a curve


@given(judged, st.sampled_from([None, 1e-9, 0.3, 1 - 1e-9]))
@plenty
def test_probabilities_rise_with_the_score_and_are_numbers(triples, prior):
    scores, truth, relations = map(np.array, zip(*triples, strict=True))
    truth[:2] = True, False
    relations = relations.astype(np.int32)
    patch = pytest.MonkeyPatch()
    with patch.context() as small:
        small.setattr("nscaching.evaluation.calibrate.CURVE_FROM", 20)
        small.setattr("nscaching.evaluation.calibrate.LEAST", 3)
        fitted = fit_calibration(scores, truth, relations, "made")
    asked = np.sort(np.concatenate([scores, HUGE, np.negative(HUGE)]))
    for relation in range(4):
        found = fitted.probabilities(asked, np.full(len(asked), relation, np.int32), prior)
        assert ((found > 0) & (found < 1)).all()
        assert (np.diff(found) >= 0).all()


def test_all_scores_equal():
    truth = np.arange(2000) % 4 == 0
    fitted = fit_calibration(np.full(2000, 3.5), truth, np.zeros(2000, np.int32), "made")
    asked = fitted.probabilities(np.array([-9.0, 3.5, 9.0]), np.array([0, 0, 1], np.int32))
    assert asked == pytest.approx([0.25, 0.25, 0.25], abs=2e-3)
    assert fitted.prior == 0.25


# The prior.

PLAIN = Calibration(Sigmoid(1.0, 0.0), {1: Sigmoid(2.0, 1.0)}, NO_CURVE, 0.2, 50, "made")


@pytest.mark.parametrize("prior", [0.001, 0.2, 0.9])
def test_another_prior_is_bayes(prior):
    scores, relations = np.array([-1.0, 0.5, 2.0]), np.array([0, 1, 2], np.int32)
    before = PLAIN.probabilities(scores, relations)
    for_true, for_false = before / 0.2, (1 - before) / 0.8  # likelihoods, but for a factor
    bayes = prior * for_true / (prior * for_true + (1 - prior) * for_false)
    assert PLAIN.probabilities(scores, relations, prior) == pytest.approx(bayes)


@pytest.mark.parametrize("prior", [0, 1, -0.5, 2, math.nan, math.inf])
def test_what_is_no_prior(prior):
    with pytest.raises(UserError, match="prior must be above 0 and below 1"):
        PLAIN.probabilities(np.zeros(1), np.zeros(1, np.int32), prior)


# The measures.


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
@plenty
def test_measures_against_plain_loops(pairs):
    chances, truth = map(np.array, zip(*pairs, strict=True))
    bins = [[] for _ in range(15)]
    for chance, true in pairs:
        bins[min(14, int(chance * 15))].append((chance, true))
    error = 0.0
    for members in filter(None, bins):
        gap = sum(chance for chance, _ in members) - sum(true for _, true in members)
        error += abs(gap) / len(pairs)
    equal = np.ones(len(pairs))
    assert calibration_error(chances, truth, equal) == pytest.approx(error)
    found = reliability(chances, truth, equal)
    assert [one["triples"] for one in found] == [len(members) for members in bins if members]
    twice = np.concatenate([chances, chances[:5]]), np.concatenate([truth, truth[:5]])
    weights = equal + (np.arange(len(pairs)) < 5)
    repeated = calibration_error(*twice, np.ones(len(twice[0])))
    assert calibration_error(chances, truth, weights) == pytest.approx(repeated)


def test_a_report_agrees_with_plain_loops():
    graph, model = random_graph(valid=60, test=60), new_model("TransE", 12, 3, seed=2)
    fitted = calibrate(model, graph)
    asked = labelled_triples(graph, "test")
    report = evaluate_calibration(model, graph, fitted)
    chances = fitted.probabilities(score_triples(model, asked.triples), asked.triples[:, 1])
    brier = [(chance - true) ** 2 for chance, true in zip(chances, asked.truth, strict=True)]
    assert report["brier"] == pytest.approx(sum(brier) / len(brier))
    assert report["share"] == pytest.approx(60 / len(brier))
    assert report["prior"] == fitted.prior == report["fitted_on"]["prior"]
    assert (report["true"], report["false"]) == (60, len(brier) - 60)
    assert sum(one["triples"] for one in report["bins"]) == report["triples"] == len(brier)
    for r, name in enumerate(graph.relations):
        part, of = report["by_relation"][name], asked.triples[:, 1] == r
        assert part["probability"] == pytest.approx(chances[of].mean())
        assert part["own"] is (r in fitted.by_relation)
    rare = evaluate_calibration(model, graph, fitted, prior=0.01)
    assert rare["share"] == pytest.approx(0.01)
    assert rare["brier"] < report["brier"]
    assert rare["probability"] < 0.05
    with pytest.raises(UserError, match="unknown split"):
        evaluate_calibration(model, graph, fitted, "tset")


# A run's answers.


@pytest.fixture(scope="module")
def run():
    graph = random_graph(entities=12, relations=4, train=90, valid=80, test=20)
    return Run(graph, None, new_model("DistMult", 12, 4, seed=5))


@pytest.mark.parametrize(
    ("gap", "prior"),
    [("head", 0.05), ("relation", 0.5), ("tail", 0.05), (None, 0.05), (None, None)],
)
def test_with_a_prior_answers_have_the_probabilities_of_their_triples(run, gap, prior):
    asked = {"head": "e3", "relation": "r1", "tail": "e5"} | ({gap: None} if gap else {})
    (got,) = run.predict(**asked, known="mark", top=99, prior=prior, any_type=True).queries
    assert got["prior"] == (run.calibrated().prior if prior is None else prior)
    assert got["fitted_on_queries"] is None
    answers = got["answers"] if gap else [got]
    triples = [
        [name if part == gap else asked[part] for part in ("head", "relation", "tail")]
        for name in ([answer["name"] for answer in answers] if gap else [""])
    ]
    found = [answer["probability"] for answer in answers]
    assert found == pytest.approx(run.probabilities(triples, prior).tolist(), abs=1e-6)
    if gap in ("head", "tail"):
        assert found == sorted(found, reverse=True)


def test_probabilities_of_ids_and_of_names(run):
    ids = np.array([[0, 1, 2], [3, 0, 3]], dtype=np.int32)
    by_name = run.probabilities([("e0", "r1", "e2"), ("E3", "r0", "e3")])
    assert np.array_equal(run.probabilities(ids), by_name)
    assert run.probabilities([]).tolist() == []
    with pytest.raises(UserError, match="unknown entity 'x'"):
        run.probabilities([("x", "r1", "e2")])


def test_thresholds_have_probabilities_beside_them(run):
    report = run.classify()
    for name, part in report["by_relation"].items():
        relation = np.array([run.graph.relations.index(name)], np.int32)
        (chance,) = run.calibrated().probabilities(np.array([part["threshold"]]), relation)
        assert part["threshold_probability"] == chance
    rare = run.classify(prior=0.01)["by_relation"]
    assert all(rare[n]["threshold_probability"] < p["threshold_probability"]
               for n, p in report["by_relation"].items())  # fmt: skip
    assert "threshold_probability" not in str(classify(run.model, run.graph))


def test_without_validation_there_are_no_probabilities():
    run = Run(random_graph(valid=0), None, new_model("TransE", 12, 3))
    (got,) = run.predict(head="e1", relation="r1").queries
    assert {answer["probability"] for answer in got["answers"]} == {got["prior"]} == {None}
    assert run.predict("e1", "r1", "e2")[0]["probability"] is None
    with pytest.raises(UserError, match="need validation triples"):
        run.probabilities([("e1", "r1", "e2")])
    with pytest.raises(UserError, match="need validation triples"):
        run.evaluate(task="calibration")
    with pytest.raises(UserError, match=r"prior 0\.1: there are no validation triples"):
        run.predict(head="e1", relation="r1", prior=0.1)


def test_without_negatives_there_are_no_probabilities():
    full = [(h, 0, t) for h in range(3) for t in range(3)]
    assert calibrate(new_model("TransE", 3, 1), graph_of(full, full[:4], full[4:])) is None


def test_probabilities_need_no_torch():
    code = "import sys, nscaching.evaluation.calibration; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"
