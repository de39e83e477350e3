"""Graphs from rows, arrays and data frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nscaching import KnowledgeGraph, UserError, train
from nscaching.data.graph import SPLITS

ROWS = [
    ("Lisbon", "in", "Portugal"), ("Porto", "in", "Portugal"), ("Portugal", "borders", "Spain"),
    ("Madrid", "in", "Spain"), ("Spain", "borders", "Portugal"),
]  # fmt: skip
COLUMNS = {part: [row[i] for row in ROWS] for i, part in enumerate(("head", "relation", "tail"))}
NUMBERS = [(7, 0, 3), (3, 2, 900), (900, 0, 7)]


class OtherFrame:
    """A frame as that of polars: it gives columns by name, and arrays have None where one lacks."""

    def __init__(self, columns):
        self._data, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return np.array(self._data[name], dtype=object)


def frames(columns):
    """Return the same columns as every kind of data frame."""
    shuffled = {name: columns[name] for name in reversed(columns)}
    return [
        columns,
        pd.DataFrame(columns),
        pd.DataFrame(shuffled),
        pd.DataFrame(columns).astype("category"),
        pd.DataFrame(columns, index=range(10, 10 + len(columns["head"]))).assign(weight=1.0),
        OtherFrame(columns),
        pa.table(columns),
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    ]


@pytest.mark.parametrize("kind", range(len(frames(COLUMNS))))
def test_every_frame_makes_the_graph_of_its_rows(kind):
    whole = KnowledgeGraph.from_triples(ROWS, split_seed=None)
    frame = frames(COLUMNS)[kind]
    made = KnowledgeGraph.from_triples(frame, split_seed=None)
    assert made.fingerprint == whole.fingerprint
    assert made.triples("train") == ROWS
    assert made.entities == ["Lisbon", "Portugal", "Porto", "Spain", "Madrid"]  # as in the rows
    assert made.relations == ["in", "borders"]


@pytest.mark.parametrize("header", ["subject predicate object", "H R T", "a b c"])
def test_other_names_of_the_columns(header):
    names = header.split()
    renamed = dict(zip(names, COLUMNS.values(), strict=True))
    assert KnowledgeGraph.from_triples(renamed, split_seed=None).triples("train") == ROWS
    backwards = {name: renamed[name] for name in reversed(names)} | {"more": [0] * len(ROWS)}
    made = KnowledgeGraph.from_triples(backwards, columns=names, split_seed=None)
    assert made.triples("train") == ROWS
    by_place = pd.DataFrame(ROWS)  # its columns are called 0, 1 and 2
    assert KnowledgeGraph.from_triples(by_place, split_seed=None).triples("train") == ROWS


@pytest.mark.parametrize("make", [list, np.array, iter, torch.tensor, pd.DataFrame])
def test_numbers_keep_their_order(make):
    graph = KnowledgeGraph.from_triples(make(NUMBERS), split_seed=None)
    assert (graph.entities, graph.relations) == (["3", "7", "900"], ["0", "2"])
    assert graph.train.tolist() == [[1, 0, 0], [0, 1, 2], [2, 0, 1]]
    assert (graph.entity_id(900), graph.entity_id("900"), graph.relation_id(np.int64(2))) == (
        2,
        2,
        1,
    )
    with pytest.raises(UserError, match="unknown entity '1'; known: 3, 7, 900"):
        graph.entity_id(1)


triple = st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6))


@settings(deadline=None)
@given(st.lists(triple, min_size=1, max_size=30), st.lists(triple, max_size=5))
def test_numbers_and_their_texts_are_the_same_triples(rows, test):
    numbers = KnowledgeGraph.from_triples(np.array(rows), test=np.array(test).reshape(-1, 3))
    texts = KnowledgeGraph.from_triples(
        [tuple(map(str, row)) for row in rows], test=[tuple(map(str, row)) for row in test]
    )
    for split in SPLITS:
        assert numbers.triples(split) == texts.triples(split)
    assert numbers.entities == sorted(texts.entities)


def test_numbers_that_are_too_large_are_names():
    for rows in ([(10**30, 0, 1)], np.array([(2**64 - 1, 0, 1)], dtype=np.uint64)):
        graph = KnowledgeGraph.from_triples(rows, split_seed=None)
        assert graph.triples("train") == [tuple(str(int(each)) for each in rows[0])]


def test_given_names_make_numbers_places():
    names = {"entities": ["a", "b", "c"], "relations": ["r"]}
    graph = KnowledgeGraph.from_triples(np.array([(0, 0, 2)]), test=[("c", "r", "a")], **names)
    assert graph.entities == ["a", "b", "c"]
    assert (graph.triples("train"), graph.triples("test")) == ([("a", "r", "c")], [("c", "r", "a")])
    assert graph.entity_id(1) == 1  # names that are no numbers: a number is a place
    with pytest.raises(UserError, match="entity 3 is out of range: there are 3 entities"):
        graph.entity_id(3)
    for wrong, complaint in [
        ([(0, 0, 3)], "entity 3 is out of range: 3 names are given"),
        ([(0, 0, -1)], "entity -1 is out of range"),
        ([("a", "q", "b")], "unknown relation 'q'; known: r"),
    ]:
        with pytest.raises(UserError, match=complaint):
            KnowledgeGraph.from_triples(wrong, **names)


def test_splits_are_given_or_made_by_seed():
    rows = [(f"e{i % 9}", f"r{i % 2}", f"e{i * i % 9}") for i in range(40)]
    once = list(dict.fromkeys(rows))
    graph = KnowledgeGraph.from_triples(rows, split_seed=3)
    assert sorted(
        graph.triples("train") + graph.triples("valid") + graph.triples("test")
    ) == sorted(once)
    assert len(graph.valid) > 0
    assert [note.split(":")[0] for note in graph.notes] == [
        f"{40 - len(once)} duplicate triples dropped from the triples",
        "split by seed 3 into train / valid / test",
    ]
    again = KnowledgeGraph.from_triples(pd.DataFrame(rows), split_seed=3)
    assert again.fingerprint == graph.fingerprint
    given = KnowledgeGraph.from_triples(rows[:30], valid=rows[30:35], test=iter(rows[35:]))
    assert given.triples("train") == list(dict.fromkeys(rows[:30]))
    assert given.triples("test") == list(dict.fromkeys(rows[35:]))
    with pytest.raises(UserError, match="split_seed must be at least 0"):
        KnowledgeGraph.from_triples(rows, split_seed=-1)


NAN = float("nan")


@pytest.mark.parametrize(
    ("triples", "complaint"),
    [
        ([], "triples: there are none"),
        (pd.DataFrame(COLUMNS)[:0], "there are none"),
        ([("a", "r")], r"triples: row 0 \(counted from 0\): expected .*, not \('a', 'r'\)"),
        ([("a", "r", "b"), "abc"], r"row 1 \(counted from 0\): expected"),
        ([{"head": "a", "relation": "r"}], "its columns are head, relation; expected head"),
        ([{"h": "a", "r": "r", "t": "b"}, {"h": "a", "r": "r"}], "row 1 .*: its tail is missing"),
        ([("a", "r", "b"), {"h": "a", "r": "r", "t": "b"}], r"row 1 .*: expected \(head,"),
        ([1, 2, 3], r"row 0 \(counted from 0\): expected .*, not \(1,\)"),
        ("abc", "expected rows of .*, not str"),
        (7, "expected rows of .*, not int"),
        (np.zeros((4, 2), int), r"expected an array of shape \[n, 3\], not \[4, 2\]"),
        (np.zeros(3, int), r"shape \[n, 3\], not \[3\]"),
        (np.zeros((1, 3)), r"row 0 .*: its head must be a name or a whole number, not 0.0"),
        ([("a", "r", "b"), ("a", None, "b")], r"row 1 .*: its relation is missing; leave such"),
        ([("a", "r", NAN)], "row 0 .*: its tail is missing"),
        (None, "triples: expected rows of .* or a data frame, not NoneType"),
        ([("a", "r", "")], "its tail is an empty name"),
        ([("a", True, "b")], "its relation must be a name or a whole number, not True"),
        ([("a", b"r", "b")], "its relation must be a name or a whole number, not b'r'"),
        (pd.DataFrame([["a", "r", "b"], [None, "r", "b"]]), "row 1 .* head is missing"),
        (pd.DataFrame({"h": [1, 2], "r": [1, None], "t": [1, 2]}), "row 1 .* relation is missing"),
        (
            pd.DataFrame({"h": [1, 2], "r": [1, 1], "t": pd.array([1, pd.NA], dtype="Int64")}),
            "row 1 .* tail is missing",
        ),
        (OtherFrame({"h": ["a"], "r": ["r"], "t": [None]}), "row 0 .* tail is missing"),
        (
            pd.DataFrame({"from": ["a"], "to": ["b"]}),
            r"triples: its columns are from, to; expected head, relation, tail, .*columns=\[",
        ),
        (pd.DataFrame([["a", "r", "b", 1]]), "its columns are 0, 1, 2, 3; expected head"),
        (
            pd.DataFrame([["r", "a", "b"]], columns=["Relation", "head", "object"]),
            "its columns are Relation, head, object; expected head, relation, tail",
        ),
        (pd.DataFrame([["b", "r", "a"]], columns=["to", "r", "h"]), "its columns are to, r, h;"),
        (pd.DataFrame([["a", "r", "b"]], columns=list("xxy")), "two columns have the same name"),
        ({"h": ["a"], "r": ["r", "r"], "t": ["b"]}, "its columns are not equally long"),
    ],
)  # fmt: skip
def test_what_is_no_triples_is_one_clear_line(triples, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        KnowledgeGraph.from_triples(triples)
    assert "\n" not in str(error.value)


def test_the_split_that_is_wrong_is_named():
    with pytest.raises(UserError, match=r"^valid: row 0"):
        KnowledgeGraph.from_triples(ROWS, valid=[("a", "r")])
    with pytest.raises(UserError, match=r"columns=\['a', 'b'\] must name three"):
        KnowledgeGraph.from_triples(pd.DataFrame(ROWS), columns=["a", "b"])
    with pytest.raises(UserError, match="names the columns of a data frame; this is none"):
        KnowledgeGraph.from_triples(ROWS, columns=["a", "b", "c"])
    with pytest.raises(UserError, match="two entities have the same name: 'a'"):
        KnowledgeGraph.from_triples(NUMBERS, entities=["a"] * 901, relations=["r", "s", "t"])


def test_a_graph_of_a_frame_is_trained_and_saved(tmp_path):
    graph = KnowledgeGraph.from_triples(
        pd.DataFrame(COLUMNS), labels={"Portugal": "Portuguese Republic"}, name="places"
    )
    run = train(graph, sampler="bernoulli", epochs=1, dim=4, out=tmp_path / "run")
    back = type(run).load(tmp_path / "run").graph
    assert back.fingerprint == graph.fingerprint
    assert (back.name, back.labels) == ("places", {"Portugal": "Portuguese Republic"})
