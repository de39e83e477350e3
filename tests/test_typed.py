"""The ranking by type against the order in which ``predict`` shows the answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import TINY, graph_of, graphs, model_for, new_model, random_graph
from nscaching import Run, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation.ranks import METRICS, metrics
from nscaching.models import MODELS


def shown_ranks(run, side, filtered):
    """Return the rank of each test answer: its place among what ``predict`` shows."""
    ranks = []
    for head, relation, tail in run.graph.test.tolist():
        anchor, answer = side.query(head, tail)
        given_part, gap = ("head", "tail") if side is Side.TAIL else ("tail", "head")
        asked = {given_part: f"e{anchor}", "relation": f"r{relation}"}
        rows = run.predict(**asked, top=99, known="mark")
        before = [row for row in rows if row["rank"] < place_of(rows, gap, answer)]
        ranks.append(1 + sum(not (filtered and row["known"]) for row in before))
    return np.array(ranks, dtype=float)


def place_of(rows, gap, answer):
    return next(row["rank"] for row in rows if row[gap] == f"e{answer}")


@settings(deadline=None)
@given(graphs(), st.booleans(), st.sampled_from(["RotatE", "TransD", "TransR"]))
def test_ranks_are_the_places_in_predict(graph, filtered, name):
    if not len(graph.test):
        return
    run = Run(graph, None, model_for(graph, name, seed=5))
    if not filtered:  # predict never shows a query as its own answer where it is no fact
        graph.train = np.concatenate(
            [graph.train, [[0, r, 0] for r in range(len(graph.relations))]]
        )
    found = run.evaluate(typed=True, filtered=filtered)["typed"]
    ranks = {side: shown_ranks(run, side, filtered) for side in Side}
    expected = metrics(np.concatenate(list(ranks.values())))
    assert {name: found[name] for name in METRICS} == pytest.approx(expected)
    for side in Side:
        assert found["by_side"][side.value] == pytest.approx(metrics(ranks[side]))


@pytest.mark.parametrize("name", MODELS.names())
def test_answers_of_every_model_rank_behind_the_type_if_they_are_outside(name):
    triples = [(0, 0, 1), (6, 0, 1), (3, 0, 2), (6, 0, 2), (3, 1, 4), (3, 1, 6)]
    graph = graph_of(triples, test=[(0, 0, 4), (5, 1, 4)], entities=7)
    run = Run(graph, None, new_model(name, 7, 2, seed=2))
    found = run.evaluate(typed=True)["typed"]
    assert (found["outside"], found["answers"]) == (2, 4)  # the tail 4 of r0, the head 5 of r1
    tail = run.predict("e0", "r0", known="mark", top=99)
    assert [row["tail"] for row in tail][:2] in (["e1", "e2"], ["e2", "e1"])
    assert found["mrr"] == pytest.approx(
        metrics(np.concatenate([shown_ranks(run, side, True) for side in Side]))["mrr"]
    )


def test_entities_seen_once_say_that_others_may_come():
    graph = graph_of([(0, 0, 1), (3, 0, 2)], test=[(0, 0, 4)], entities=7)
    run = Run(graph, None, new_model("TransE", 7, 1, seed=2))
    report = run.evaluate(typed=True)
    assert report["typed"]["outside"] == 0
    without_the_query = report["typed"]["mrr"]  # which is no answer: there are no loops
    assert without_the_query >= report["mrr"]


def test_an_unknown_relation_has_no_type():
    graph = graph_of([(0, 0, 1)], test=[(0, 1, 2)], entities=5)
    run = Run(graph, None, new_model("TransE", 5, 2))
    report = run.evaluate(typed=True)
    assert report["typed"]["outside"] == 0
    assert report["typed"]["mrr"] == report["mrr"]


def test_what_it_goes_with():
    run = Run(random_graph(), None, new_model("TransE", 12, 3))
    assert "typed" not in run.evaluate()
    done = []
    run.evaluate(typed=True, progress=lambda *each: done.append(each))
    assert done[-1] == (16, 16)
    with pytest.raises(UserError, match="typed goes with task links"):
        run.evaluate(task="relations", typed=True)


def test_the_verb_shows_it_beside(tmp_path, ask, capsys):
    run = train(random_graph(), out=tmp_path / "run", **TINY)
    main(["evaluate", str(run.path), "--typed", "--device", "cpu"])
    table = capsys.readouterr().out
    expected = run.evaluate(typed=True)["typed"]
    row = next(line for line in table.splitlines() if line.strip().startswith("all, by type"))
    assert f"{expected['mrr']:.4f}" in row
    assert f"{expected['outside']} of 16 answers are not among them" in table
    assert ask("evaluate", str(run.path), "--typed", "--device", "cpu")["typed"] == expected
