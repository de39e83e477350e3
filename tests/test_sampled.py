"""Rankings among sampled candidates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from helpers import SLOW, TINY, goodness, new_kernels, new_model, random_graph, twins
from nscaching import Run, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation import sampled
from nscaching.evaluation.ranking import BUDGET, Queries, rank
from nscaching.evaluation.ranks import Ranks
from nscaching.kernels import Kernels

GRAPH = random_graph(entities=40, train=200, test=12, seed=3)


@twins
def test_samples_agree(twin):
    number = torch.tensor([0, 5, 2**33])
    for below, count in ((1, 1), (9, 9), (700, 300)):
        one, other = (k.sample(below, count, 7, number) for k in (Kernels(), new_kernels(twin)))
        assert torch.equal(one, other)
        assert all(len(set(row)) == count for row in one.tolist())
        assert 0 <= one.min() <= one.max() < below
        assert (one[0] != one[1]).any() or below == 1


def test_any_sample_is_as_likely_as_any_other():
    found = Kernels().sample(6, 3, 1, torch.arange(20_000))
    seen = Counter(tuple(sorted(row)) for row in found.tolist())
    assert goodness(seen, dict.fromkeys(seen, 1 / 20)) > 1e-6
    assert len(seen) == 20


def plain_ranks(model, candidates, seed, filtered):
    """Rank one query after another among the candidates of its sample."""
    found = {side: ([], []) for side in Side}
    known = {tuple(t) for s in ("train", "valid", "test") for t in GRAPH.split(s).tolist()}
    for place, (h, r, t) in enumerate(GRAPH.test.tolist()):
        for turn, side in enumerate(Side):
            anchor, answer = side.query(h, t)
            drawn = Kernels().sample(39, candidates, seed, torch.tensor([2 * place + turn]))[0]
            others = [e + (e >= answer) for e in drawn.tolist()]
            triple = {e: (e, r, anchor) if side is Side.HEAD else (anchor, r, e) for e in others}
            rivals = [e for e in others if not (filtered and triple[e] in known)]
            ids = torch.tensor([[answer, *rivals]])
            asked = side, torch.tensor([anchor]), torch.tensor([r])
            with torch.no_grad():
                true, *false = model.score_candidates(*asked, ids)[0].tolist()
            above = sum(score > true for score in false)
            found[side][0].append(1 + above)
            found[side][1].append(1 + above + sum(score == true for score in false))
    return found


@pytest.mark.parametrize(
    ("path", "filtered"),
    [("reference", True), ("reference", False), ("numba", False), ("triton", True)],
)
def test_ranks_agree_with_the_slow_twin(path, filtered):
    model, queries = new_model("DistMult", 40, 3), Queries(GRAPH, GRAPH.test, filtered)
    with torch.no_grad():
        model.entity.copy_(model.entity.sign())  # scores are exact and often equal
        model.relation.copy_(model.relation.sign())
    expected = plain_ranks(model, 15, 4, filtered)
    for budget in (BUDGET, 1)[: 1 if path in SLOW else 2]:
        kernels = new_kernels(path)
        found = sampled.rank_sampled(model, queries, 15, 4, budget=budget, kernels=kernels)
        for side in Side:
            optimistic, pessimistic = expected[side]
            assert found[side].optimistic.tolist() == optimistic
            assert found[side].pessimistic.tolist() == pessimistic


def test_a_sample_of_all_entities_is_the_full_ranking():
    model, queries = new_model("ComplEx", 40, 3), Queries(GRAPH, GRAPH.test)
    full = sampled.evaluate(model, GRAPH)
    for candidates in (39, 40, 10**6):
        assert sampled.evaluate(model, GRAPH, candidates=candidates, seed=5) == full
    assert "candidates" not in full
    # The sampled path itself comes to the same.
    found = sampled.rank_sampled(model, queries, 39, 5, budget=BUDGET, kernels=Kernels())
    for side, ranks in rank(model, queries, kernels=Kernels()).items():
        assert found[side].optimistic.tolist() == ranks.optimistic.tolist()
        assert found[side].pessimistic.tolist() == ranks.pessimistic.tolist()
    figures = sampled.sampled_figures(found, 39, 40, "realistic")["full_ranking"]
    for name in ("mrr_at_least", "mrr_at_most"):
        assert figures[name] == pytest.approx(full["mrr"])
    assert figures["mr"] == pytest.approx(full["mr"])


def test_what_a_sample_says_of_the_full_ranking_holds_on_average():
    model = new_model("TransE", 40, 3)
    full = sampled.evaluate(model, GRAPH)
    reports = [sampled.evaluate(model, GRAPH, candidates=8, seed=seed) for seed in range(60)]
    found = [report["full_ranking"] for report in reports]
    mean = {name: np.mean([each[name] for each in found]) for name in found[0]}
    spread = np.std([each["mr"] for each in found]) / 60**0.5
    assert abs(mean["mr"] - full["mr"]) < 5 * spread
    assert mean["mrr_at_least"] < full["mrr"] < mean["mrr_at_most"]
    assert np.mean([report["mrr"] for report in reports]) > 1.2 * full["mrr"]


def test_standard_errors_are_over_triples():
    ranks = {Side.HEAD: np.array([1, 2, 4]), Side.TAIL: np.array([1, 4, 10])}
    ranks = {side: Ranks(values, values) for side, values in ranks.items()}
    errors = sampled.sampled_figures(ranks, 10, 100, "realistic")["standard_error"]
    assert errors["mr"] == pytest.approx(np.std([1, 3, 7], ddof=1) / 3**0.5)
    assert errors["hits@1"] == pytest.approx(np.std([1, 0, 0], ddof=1) / 3**0.5)
    alone = {side: Ranks(r.optimistic[:1], r.pessimistic[:1]) for side, r in ranks.items()}
    assert set(sampled.sampled_figures(alone, 10, 100, "realistic")["standard_error"].values()) == {
        None
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("sampled") / "run"
    settings = {**TINY, "seed": 2, "validate_candidates": 6}
    return train(GRAPH, out=path, **settings)


def test_validation_among_candidates_says_so(run):
    valid = run.result("valid")
    assert (valid["candidates"], valid["seed"]) == (6, 2)
    assert "candidates" not in run.result("test")
    assert "valid, 6 sampled candidates" in (run.path / "README.md").read_text()
    assert "validation, 6 sampled candidates" in (run.path / "report.html").read_text()
    again = train(GRAPH, **{**TINY, "seed": 2, "validate_candidates": 6})
    assert again.result("valid")["mrr"] == valid["mrr"]
    full, whole = (
        train(GRAPH, **{**TINY, "seed": 2, "validate_candidates": count}).result("valid")
        for count in (0, 40)
    )
    assert "candidates" not in whole
    assert whole["mrr"] == full["mrr"]


def test_the_command_line(run, ask, capsys):
    path, words = str(run.path), ["--candidates", "10", "--seed", "3"]
    main(["evaluate", path, *words])
    said = " ".join(capsys.readouterr().out.split())
    assert "among 10 sampled candidates (seed 3)" in said
    assert "not to be compared with a full ranking" in said
    assert "MRR ±" in said
    assert "full ranking, estimated: MR" in said
    found = ask("evaluate", path, *words)
    assert found == {"run": path, **Run.load(path).evaluate(candidates=10, seed=3)}
    assert (found["candidates"], found["seed"]) == (10, 3)
    main(["evaluate", path, "--candidates", "40"])
    assert "the ranking is full: there are 40 entities" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--candidates -1", "--candidates must be at least 0, not -1"),
        ("--candidates 5 --seed -2", "--seed must be at least 0, not -2"),
        ("--seed 4", "--seed goes with --candidates only"),
        ("--candidates 5 --typed", "--typed goes with the ranking of all entities: leave out"),
        ("--candidates 5 --task relations", "--candidates samples entities: leave out --candidate"),
        ("--candidates 5 --task calibration", "--candidates and --seed are of rankings: --task"),
    ],
)
def test_bad_values(run, capsys, words, message):
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(run.path), *words.split()])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nscaching: {message}")


def test_bad_settings():
    with pytest.raises(UserError, match="validate_candidates must be at least 0, not -3"):
        train(GRAPH, **{**TINY, "validate_candidates": -3})
