"""Answers by type, to one query or many, as rows of a table; scores of triples by name."""

from __future__ import annotations

import sys
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import TINY, all_triples, graph_of, graphs, model_for, random_graph
from nscaching import KnowledgeGraph, Run, UserError, train
from nscaching.cli.main import main
from nscaching.data import types
from nscaching.evaluation.answers import known_answers

GRAPH = random_graph(entities=12, relations=3, train=25, valid=10, test=10)
QUERIES = [(f"e{i}", f"r{i % 3}") for i in range(12)]


def run_of(graph, name="TransE", seed=3):
    return Run(graph, None, model_for(graph, name, seed=seed))


def expected_answers(run, head, relation, tail, known, most_new):
    """Sort all entities by type, then by score, and leave out what is to be left out."""
    graph, rows = run.graph, run.graph.train.tolist()
    pairs = [(h, t) for h, r, t in rows if r == relation]
    column = [t if tail is None else h for h, t in pairs]
    seen, once = set(column), sum(column.count(each) == 1 for each in column)
    loops = not pairs or any(h == t for h, t in pairs)
    found = []
    for entity in range(len(graph.entities)):
        triple = (entity if head is None else head, relation, entity if tail is None else tail)
        fact = triple in all_triples(graph)
        if (fact and known == "hide") or (triple[0] == triple[2] and not loops and not fact):
            continue
        score = run.model.score(*map(torch.tensor, triple)).item()
        behind = entity not in seen and once <= most_new * len(column)
        found.append((behind, -score, entity))
    return [(f"e{entity}", entity in seen) for _, _, entity in sorted(found)]


@settings(deadline=None)
@given(
    graphs(), st.sampled_from(["hide", "mark"]), st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0])
)
def test_entities_of_the_type_go_first(graph, known, seed, most_new):
    """Where training has nearly all entities of a side; the others keep the order by score."""
    run = run_of(graph, "RotatE", seed)
    for anchor in range(len(graph.entities)):
        for relation in range(len(graph.relations)):
            for part in ("head", "tail"):
                asked = {"relation": f"r{relation}", part: f"e{anchor}"}
                ids = {"head": None, "tail": None} | {part: anchor}
                ends = ids["head"], relation, ids["tail"]
                expected = expected_answers(run, *ends, known, most_new)
                gap = "tail" if part == "head" else "head"
                for top in (1, 4, 99):
                    with mock.patch.object(types, "MOST_NEW", most_new):
                        rows = run.predict(**asked, top=top, known=known)
                    assert [(row[gap], row["of_relation"]) for row in rows] == expected[:top]
                    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))


def test_a_query_is_no_answer_of_its_own_unless_training_has_loops():
    borders, likes = [(0, 0, 1), (1, 0, 2), (2, 0, 0)], [(0, 1, 0), (1, 1, 2)]
    run = run_of(graph_of(borders + likes, relations=3))

    def answers(relation, **options):
        return {row["tail"] for row in run.predict("e0", relation, top=9, **options)}

    assert answers("r0", known="mark") == {"e1", "e2"}
    assert answers("r0", known="mark", any_type=True) == {"e0", "e1", "e2"}
    assert answers("r1", known="mark") == {"e0", "e1", "e2"}
    assert answers("r2") == {"e0", "e1", "e2"}  # training says nothing of r2
    of_test = graph_of(borders, test=[(0, 0, 0)])
    rows = run_of(of_test).predict("e0", "r0", known="mark")
    assert {row["tail"]: row["known"] for row in rows} == {"e0": "test", "e1": "train", "e2": ""}


@settings(deadline=None)
@given(graphs())
def test_known_answers_are_those_of_the_splits(graph):
    sizes = len(graph.entities), len(graph.relations), len(graph.entities)
    for gap in range(3):
        grid = np.indices([1 if i == gap else size for i, size in enumerate(sizes)]).reshape(3, -1)
        found = known_answers(graph, gap, grid.astype(np.int32))
        for ids, answers in zip(grid.T.tolist(), found, strict=True):
            expected = {}
            for split in ("test", "valid", "train"):
                for triple in all_triples(graph, [split]):
                    if all(triple[i] == ids[i] for i in range(3) if i != gap):
                        expected[triple[gap]] = split
            assert answers == expected


@pytest.mark.parametrize("name", ["ComplEx", "TransE", "TransH", "ManifoldE"])
@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series])
@pytest.mark.parametrize("gap", ["head", "relation", "tail"])
def test_many_queries_are_one_by_one(name, kind, gap, monkeypatch):
    run = run_of(GRAPH, name)
    first, second = (kind(list(column)) for column in zip(*QUERIES, strict=True))
    if gap == "relation":
        asked = {"head": first, "tail": kind([f"e{(i * 5) % 12}" for i in range(12)])}
    else:
        asked = {"relation": second, "tail" if gap == "head" else "head": first}
    monkeypatch.setattr("nscaching.evaluation.torch_scores.chunk_size", lambda model: 5)
    together = run.predict(**asked, top=4)
    assert len(together.queries) == 12
    for number in range(12):
        one = run.predict(**{part: column[number] for part, column in asked.items()}, top=4)
        mine = [row for row in together if row["query"] == number]
        assert len(mine) == len(one)
        for row, alone in zip(mine, one, strict=True):
            assert row["score"] == pytest.approx(alone["score"], abs=1e-5)
            assert row["probability"] == pytest.approx(alone["probability"], abs=1e-5)
            figures = {name: row[name] for name in ("score", "probability")}
            assert {**alone, **figures, "query": number} == row
        assert together.queries[number].keys() == one.queries[0].keys()


def test_one_name_goes_with_many():
    run = run_of(GRAPH)
    many = run.predict([f"e{i}" for i in range(4)], "r1", top=2)
    assert [row["query"] for row in many] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {row["relation"] for row in many} == {"r1"}
    assert many == run.predict(np.arange(4), np.int64(1), top=2)  # ids
    assert run.predict([], "r1") == []
    judged = run.predict(["e1", "e2"], "r0", ["e3", "e4"])
    assert [(row["head"], row["tail"]) for row in judged] == [("e1", "e3"), ("e2", "e4")]
    assert judged[1] == run.predict("e2", "r0", "e4")[0] | {"query": 1}


def test_rows_are_what_pandas_takes():
    run = run_of(GRAPH)
    rows = run.predict("e1", "r1", top=3)
    columns = ["head", "relation", "tail", "rank", "label", "score", "known", "of_relation"]
    columns.append("probability")
    assert list(rows.to_pandas().columns) == columns
    pd.testing.assert_frame_equal(rows.to_pandas(), pd.DataFrame(rows))
    many = run.predict(pd.DataFrame(QUERIES)[0], pd.DataFrame(QUERIES)[1], top=3).to_pandas()
    assert list(many.columns) == ["query", *columns]
    scored = run.score(many[["head", "relation", "tail"]])
    np.testing.assert_allclose(scored, many["score"], rtol=1e-5)
    np.testing.assert_allclose(run.score(rows), [row["score"] for row in rows], rtol=1e-5)
    by_relation = run.predict(head="e1", tail="e2", known="mark").to_pandas()
    assert list(by_relation.columns) == [name for name in columns if name != "of_relation"]


def test_without_pandas_to_pandas_is_one_line(monkeypatch):
    rows = run_of(GRAPH).predict("e1", "r1")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="to_pandas needs pandas: pip install pandas"):
        rows.to_pandas()


@pytest.mark.parametrize("name", ["DistMult", "TransD"])
def test_triples_are_scored_by_name_or_id(name):
    run = run_of(GRAPH, name)
    expected = run.model.score(*torch.from_numpy(GRAPH.test).long().unbind(1)).detach()
    for triples in (GRAPH.triples("test"), GRAPH.test, pd.DataFrame(GRAPH.triples("test"))):
        np.testing.assert_allclose(run.score(triples), expected)
    assert run.score([]).shape == (0,)
    numbers = KnowledgeGraph.from_triples([(70, 1, 3), (3, 1, 500)], split_seed=None)
    assert numbers.ids([(500, 1, 70)]).tolist() == [[2, 0, 1]]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ((["e1", "e2"], ["r1"] * 3), "must be equally many, not 2 and 3"),
        ((["e1", None], "r1"), r"query: row 1 \(counted from 0\): its head is missing"),
        ((["e1", "x"], "r1"), "unknown entity 'x'"),
        (("e1", ["r1", "nothing"]), "unknown relation 'nothing'"),
        ((["e1", 2.5], "r1"), "its head must be a name or a whole number, not 2.5"),
        ((99, "r1"), "entity 99 is out of range: there are 12 entities"),
        ((["e1"],), "give at least two of head, relation and tail"),
    ],
)
def test_wrong_queries(asked, complaint):
    with pytest.raises(UserError, match=complaint):
        run_of(GRAPH).predict(*asked)


def test_wrong_triples():
    for triples, complaint in [
        ([("e1", "r1", "x")], "unknown entity 'x'"),
        ([("e1", "r1")], "triples: row 0"),
        ([(0, 7, 0)], "relation 7 is out of range: there are 3 relations"),
    ]:
        with pytest.raises(UserError, match=complaint):
            run_of(GRAPH).score(triples)


def test_the_verb_marks_who_is_not_of_the_type(tmp_path, ask, capsys):
    triples = [(0, 0, 1), (2, 0, 1), (2, 0, 3), (4, 0, 3), (3, 1, 0)]
    graph = graph_of(triples, entities=5, relations=2)
    run = train(graph, out=tmp_path / "run", **TINY)
    words = ["predict", str(run.path), "--head", "e0", "--relation", "r0"]
    main(words)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-3:] == ["score", "known", "type"]
    names = {line[1]: line[-1] for line in lines[1:4]}
    assert lines[1][1] == "e3"  # the tails of r0 are e1, which is known, and e3; e0 is the query
    assert names.keys() == {"e2", "e3", "e4"}
    assert {name for name, last in names.items() if last == "other"} == {"e2", "e4"}
    assert lines[4] == ["other:", "never", "a", "tail", "of", "r0", "in", "training"]
    assert lines[5] == ["1", "known", "fact", "left", "out;", "--known", "mark", "shows", "it"]
    answers = ask(*words, "--any", "--known", "mark")["answers"]
    assert {each["name"]: each["of_relation"] for each in answers} == {
        "e0": False, "e1": True, "e2": False, "e3": True, "e4": False,
    }  # fmt: skip
    assert [each["score"] for each in answers] == sorted(each["score"] for each in answers)[::-1]
    main([*words, "--top", "1"])
    assert "type" not in capsys.readouterr().out  # there is nobody to mark


def test_a_table_shows_the_short_form_beside_a_label(tmp_path, capsys):
    iri = "http://dbpedia.org/resource/"
    rows = [(f"{iri}{i}", f"{iri}near", f"{iri}{(i + 1) % 6}") for i in range(6)]
    graph = KnowledgeGraph.from_triples(rows, labels={f"{iri}3": "Three"}, split_seed=None)
    run = train(graph, out=tmp_path / "run", **TINY)
    main(["predict", str(run.path), "--head", "dbr:0", "--relation", "near", "--device", "cpu"])
    out = capsys.readouterr().out
    assert "(dbr:0, dbr:near, ?)" in out
    assert "Three (dbr:3)" in out
    assert iri not in out
