"""Answers by name against a brute-force sort by single scores."""

from __future__ import annotations

import functools

import pytest
import torch

from helpers import TINY, all_triples, graph_of, new_model, random_graph
from nscaching import Run, UserError, train
from nscaching.cli.main import main
from nscaching.evaluation.classify import fit_thresholds, score_triples
from nscaching.evaluation.labelled import labelled_triples
from nscaching.models import MODELS

GRAPH = random_graph(entities=12, relations=4, train=90, valid=20, test=20)


@functools.cache
def run_of(name):
    """Return a run, whose probabilities are fitted at its first answer and then kept."""
    return Run(GRAPH, None, new_model(name, 12, 4, norm=2, seed=7))


def ask(graph, model, *question, **options):
    """Return the answers to one query, as ``--json`` prints them."""
    return asked_of(Run(graph, None, model), *question, **options)


def asked_of(run, *question, **options):
    (result,) = run.predict(*question, **options).queries
    return result


def split_of(triple, graph=GRAPH):
    found = [s for s in ("train", "valid", "test") if triple in all_triples(graph, [s])]
    return found[0] if found else ""


def brute_force(model, triples, hide):
    """Score and sort whole triples: [(triple, score, split)], best first."""
    scored = [
        (model.score(*map(torch.tensor, triple)).item(), triple, split_of(triple))
        for triple in triples
    ]
    return [
        (triple, score, split)
        for score, triple, split in sorted(scored, reverse=True)
        if not (hide and split)
    ]


@pytest.mark.parametrize("known", ["hide", "mark"])
@pytest.mark.parametrize("gap", ["head", "relation", "tail"])
@pytest.mark.parametrize("name", MODELS.names())
def test_ranking_is_a_sort_by_score(name, gap, known):
    run = run_of(name)
    for h, r, t in [(0, 0, 5), *GRAPH.test[:4].tolist(), *GRAPH.train[:2].tolist()]:
        triples = {
            "head": [(e, r, t) for e in range(12)],
            "relation": [(h, i, t) for i in range(4)],
            "tail": [(h, r, e) for e in range(12)],
        }[gap]
        asked = {"head": f"e{h}", "relation": f"r{r}", "tail": f"e{t}"} | {gap: None}
        expected = brute_force(run.model, triples, known == "hide")
        for top in (1, 3, 99):
            got = asked_of(run, **asked, top=top, known=known, any_type=True)
            assert {part: got[part] for part in asked} == asked
            hidden = sum(bool(split_of(triple)) for triple in triples)
            assert got["known_facts_left_out"] == (hidden if known == "hide" else 0)
            assert len(got["answers"]) == min(top, len(expected))
            for place, (answer, (triple, score, split)) in enumerate(
                zip(got["answers"], expected, strict=False), start=1
            ):
                column = ("head", "relation", "tail").index(gap)
                letter = "r" if gap == "relation" else "e"
                assert answer["rank"] == place
                assert answer["name"] == answer["label"] == f"{letter}{triple[column]}"
                assert answer["score"] == pytest.approx(score, abs=1e-5)
                assert answer["known"] == split


def test_everything_is_known():
    graph = graph_of([(0, 0, 0), (0, 0, 1)], [(0, 0, 2)])
    got = ask(graph, new_model("TransE", 3, 1), head="e0", relation="r0")
    assert (got["answers"], got["known_facts_left_out"]) == ([], 3)


def test_a_fact_of_two_splits_is_of_the_first():
    graph = graph_of([(0, 0, 1)], [(0, 0, 1)], [(0, 0, 1), (0, 0, 0)])
    got = ask(graph, new_model("TransE", 2, 1), head="e0", relation="r0", known="mark")
    assert {a["name"]: a["known"] for a in got["answers"]} == {"e0": "test", "e1": "train"}


def test_names_may_be_labels():
    graph = random_graph()
    graph.labels.update({"e3": "Lisbon", "e4": "Madrid"})
    model = new_model("TransE", 12, 3)
    by_label = ask(graph, model, head="lisbon", relation="r1", top=12, known="mark")
    assert by_label == ask(graph, model, head="e3", relation="r1", top=12, known="mark")
    assert by_label["head"] == "Lisbon"
    assert {"e4": "Madrid", "e5": "e5"}.items() <= {
        a["name"]: a["label"] for a in by_label["answers"]
    }.items()


def test_a_whole_triple_is_judged():
    graph = random_graph(relations=3, valid=20)
    graph.valid = graph.valid[graph.valid[:, 1] != 2]  # relation 2 has the fallback
    model = new_model("TransE", 12, 3, seed=6)
    valid = labelled_triples(graph, "valid")
    fitted = fit_thresholds(score_triples(model, valid.triples), valid.truth, valid.triples[:, 1])
    verdicts = set()
    for h in range(12):
        for r in range(3):
            triple = (h, r, (5 * h + r) % 12)
            got = ask(graph, model, f"e{h}", f"r{r}", f"e{triple[2]}")
            assert (got["head"], got["relation"], got["tail"]) == (
                f"e{h}", f"r{r}", f"e{triple[2]}",
            )  # fmt: skip
            assert got["score"] == pytest.approx(model.score(*map(torch.tensor, triple)).item())
            assert got["threshold"] == (fitted.fallback if r == 2 else fitted.by_relation[r])
            assert got["plausible"] is (got["score"] >= got["threshold"])
            assert got["known"] == split_of(triple, graph)
            verdicts.add((got["plausible"], bool(got["known"])))
    assert verdicts == {(True, True), (True, False), (False, True), (False, False)}


def test_without_validation_there_is_no_verdict():
    got = ask(random_graph(valid=0), new_model("TransE", 12, 3), "e1", "r1", "e2")
    assert got["threshold"] is None
    assert got["plausible"] is None
    assert isinstance(got["score"], float)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({}, "at least two"),
        ({"head": "e1"}, "at least two"),
        ({"head": "e1", "relation": "r1", "top": 0}, "top must be at least 1"),
        ({"head": "e99", "relation": "r1"}, "unknown entity 'e99'"),
        ({"head": "e1", "relation": "r9"}, "unknown relation 'r9'"),
        ({"head": "e1", "relation": "r1", "known": "show"}, r"known: 'show'; known: hide, mark"),
    ],
)
def test_wrong_questions(question, complaint):
    with pytest.raises(UserError, match=complaint):
        Run(GRAPH, None, new_model("TransE", 12, 4)).predict(**question)


@pytest.mark.parametrize("gap", ["head", "relation", "tail", None])
def test_a_diverged_model(gap):
    model = new_model("DistMult", 12, 4)
    torch.nn.init.constant_(model.entity, float("nan"))
    asked = {"head": "e1", "relation": "r1", "tail": "e2"} | ({gap: None} if gap else {})
    with pytest.raises(UserError, match="diverged"):
        Run(GRAPH, None, model).predict(**asked)


def test_a_query_without_answers_is_one_line(tmp_path, capsys):
    train(graph_of([(0, 0, 1)]), out=tmp_path / "run", **TINY | {"sampler": "bernoulli"})
    capsys.readouterr()
    main(["predict", str(tmp_path / "run"), "--head", "e0", "--relation", "r0"])
    assert capsys.readouterr().out.splitlines() == [
        "(e0, r0, ?): no answer is left",
        "1 known fact left out; --known mark shows it",
    ]
