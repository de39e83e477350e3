"""From a name, a folder or a file to a graph; one file split so that nothing unseen is asked."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nscaching import KnowledgeGraph
from nscaching.data import datasets, splitting
from nscaching.data.graph import SPLITS, Source
from nscaching.data.splitting import split_triples
from nscaching.errors import UserError

load_graph = KnowledgeGraph.load

TRAIN = "a\tr\tb\nb\tr\tc\nc\ts\ta\n"
OPENKE = {
    "entity2id.txt": "3\na\t0\nb\t1\nc\t2\n",
    "relation2id.txt": "2\nr\t0\ns\t1\n",
    "train2id.txt": "3\n0 1 0\n1 2 0\n2 0 1\n",
    "valid2id.txt": "1\n0 2 0\n",
    "test2id.txt": "1\n2 1 1\n",
    "valid_neg.txt": "0 2 0 1\n0 0 0 -1\n",
    "test_neg.txt": "2 1 1 1\n2 2 1 -1\n",
}


def fill(folder, files, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def names(graph, split):
    """Return the triples of a split by name."""
    return [
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in graph.split(split).tolist()
    ]


# A folder of splits.


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt"])
def test_a_folder_of_splits(tmp_path, suffix, packed):
    texts = {"train": TRAIN, "valid": "a\tr\tc\n", "test": "c\ts\tb\n"}
    separator = {".tsv": "\t", ".csv": ",", ".txt": " "}[suffix]
    files = {f"{name}{suffix}": text.replace("\t", separator) for name, text in texts.items()}
    graph = load_graph(fill(tmp_path / "toy", files, packed))
    assert graph.name == "toy"
    assert graph.entities == ["a", "b", "c"]
    assert graph.relations == ["r", "s"]
    assert names(graph, "train") == [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]
    assert names(graph, "valid") == [("a", "r", "c")]
    assert names(graph, "test") == [("c", "s", "b")]
    assert graph.notes == []
    assert graph.source == Source(str(tmp_path / "toy"))
    assert all(graph.split(split).dtype == np.int32 for split in SPLITS)


def test_the_splits_may_differ_in_format_and_one_may_be_missing(tmp_path):
    folder = fill(tmp_path / "toy", {"train.tsv": TRAIN, "test.csv": "c,s,b\n"})
    graph = load_graph(folder)
    assert names(graph, "test") == [("c", "s", "b")]
    assert len(graph.valid) == 0
    assert graph.notes == [f"{folder} has no valid file"]


def test_two_files_for_one_split_are_a_question(tmp_path):
    folder = fill(tmp_path, {"train.tsv": TRAIN, "train.txt": TRAIN, "test.tsv": TRAIN})
    with pytest.raises(UserError, match=r"which one is to be read\? train.tsv, train.txt$"):
        load_graph(folder)


@pytest.mark.parametrize("files", [{}, {"valid.tsv": TRAIN}, {"notes.md": "x"}])
def test_a_folder_without_a_train_file(tmp_path, files):
    with pytest.raises(UserError, match=r"toy: holds no train\.tsv"):
        load_graph(fill(tmp_path / "toy", files))


def test_a_folder_with_a_train_file_only_is_split_like_a_file(tmp_path):
    text = "".join(f"e{i}\tr\te{j}\n" for i in range(8) for j in range(8))
    folder = load_graph(fill(tmp_path / "toy", {"train.tsv": text}), split_seed=3)
    file = load_graph(fill(tmp_path, {"one.tsv": text}) / "one.tsv", split_seed=3)
    assert (folder.name, file.name) == ("toy", "one")
    for split in SPLITS:
        assert folder.split(split).tolist() == file.split(split).tolist()


def test_a_name_is_found_from_inside_and_home(tmp_path, monkeypatch):
    fill(tmp_path / "toy", {"train.tsv": TRAIN, "test.tsv": TRAIN})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_graph("~/toy").source.data == str(tmp_path / "toy")
    monkeypatch.chdir(tmp_path / "toy")
    assert load_graph(".").name == "toy"
    assert load_graph(fill(tmp_path / "toy.v1.2", {"train.tsv": TRAIN})).name == "toy.v1.2"
    assert load_graph(fill(tmp_path, {".x.tsv": TRAIN}) / ".x.tsv").name == ".x.tsv"
    (tmp_path / "toy" / "below").mkdir()
    monkeypatch.chdir("below")
    assert load_graph("..").name == "toy"
    monkeypatch.chdir("..")
    assert load_graph("train.tsv").source.data == str(tmp_path / "toy" / "train.tsv")


# OpenKE.


@pytest.mark.parametrize("packed", [False, True])
def test_an_openke_folder(tmp_path, packed):
    graph = load_graph(fill(tmp_path / "toy", OPENKE, packed))
    assert names(graph, "train") == [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]
    assert names(graph, "valid") == [("a", "r", "c")]
    assert names(graph, "test") == [("c", "s", "b")]
    assert graph.labelled["valid"].triples.tolist() == [[0, 0, 2], [0, 0, 0]]
    assert graph.labelled["test"].truth.tolist() == [True, False]
    assert graph.notes == []


def test_an_openke_folder_may_hold_train_only(tmp_path):
    files = {name: OPENKE[name] for name in ("entity2id.txt", "relation2id.txt", "train2id.txt")}
    folder = fill(tmp_path, files)
    graph = load_graph(folder)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (3, 0, 0)
    assert graph.labelled == {}
    assert graph.notes == [f"{folder} has no valid file", f"{folder} has no test file"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entity2id.txt": None}, r"entity2id\.txt: cannot read it: No such file or directory"),
        ({"relation2id.txt": None}, r"relation2id\.txt: cannot read it: No such file or directory"),
        ({"entity2id.txt": "4\na\t0\n"}, r"entity2id\.txt:1: says 4 names, but 1 follow"),
        ({"entity2id.txt": "2\na\t0\nb\t1\n"}, r"train2id\.txt:3: tail id 2 is out of range 0…1"),
        ({"train2id.txt": "0\n"}, r"train2id\.txt: the file holds no triples"),
        ({"test2id.txt": "1\n0 0 2\n"}, r"test2id\.txt:2: relation id 2 is out of range 0…1"),
        ({"test_neg.txt": "0 0 3 1\n"}, r"test_neg\.txt:1: relation id 3 is out of range 0…1"),
    ],
)
def test_a_damaged_openke_folder(tmp_path, change, message):
    files = {name: text for name, text in (OPENKE | change).items() if text is not None}
    with pytest.raises(UserError, match=message):
        load_graph(fill(tmp_path, files))


def test_a_packed_copy_beside_the_file_is_a_question(tmp_path):
    fill(tmp_path, OPENKE)
    fill(tmp_path, {"train2id.txt": OPENKE["train2id.txt"]}, packed=True)
    with pytest.raises(UserError, match=r"which one .* train2id.txt, train2id.txt.gz"):
        load_graph(tmp_path)


@pytest.mark.parametrize("name", ["wn18rr", "FB15k-237"])
def test_known_data_sets(mirror, name, monkeypatch):
    monkeypatch.setenv("NSCACHING_MIRROR", str(mirror))
    graph, known = KnowledgeGraph.load(name), datasets.find(name)
    assert (graph.name, graph.source.data) == (known.name, known.name)
    counts = [len(graph.entities), len(graph.relations), *(len(graph.split(s)) for s in SPLITS)]
    assert counts == [known.entities, known.relations, known.train, known.valid, known.test]
    # Both are known for entities that only their held-out triples have.
    assert [note.partition(" (such as")[0] for note in graph.notes] == [
        {"wn18rr": "384", "fb15k237": "36"}[known.name] + " entities of valid/test are not in train"
    ]
    assert {len(graph.labelled[split].triples) for split in ("valid", "test")} == {
        2 * known.valid,
        2 * known.test,
    }


# What a reader of the data should hear.


def test_repeats_are_dropped_counted_and_said_once(tmp_path):
    files = {"train.tsv": TRAIN + TRAIN, "valid.tsv": "a\tr\tb\n" * 3, "test.tsv": "a\tr\tb\n"}
    graph = load_graph(fill(tmp_path / "toy", files))
    assert names(graph, "train") == [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]
    assert len(graph.valid) == len(graph.test) == 1
    assert graph.notes == [
        "3 duplicate triples dropped from train",
        "2 duplicate triples dropped from valid",
        "2 triples of valid/test stand in another split too; they are kept",
    ]
    single = load_graph(fill(tmp_path, {"one.tsv": TRAIN + TRAIN}) / "one.tsv")
    assert len(single.train) == 3
    assert single.notes == [
        "3 duplicate triples dropped from one.tsv",
        "split by seed 0 into train / valid / test: 3 / 0 / 0 triples",
    ]


def test_what_is_not_in_train_is_counted_and_stays(tmp_path):
    files = {"train.tsv": TRAIN, "valid.tsv": "x\tr\ty\nx\tr\ta\n", "test.tsv": "y\tq\ta\n"}
    graph = load_graph(fill(tmp_path / "toy", files))
    assert graph.entities == ["a", "b", "c", "x", "y"]
    assert graph.notes == [
        "2 entities of valid/test are not in train (such as 'x'); they stay in the ranking",
        "1 relation of valid/test is not in train (such as 'q'); it stays in the ranking",
    ]
    assert names(graph, "test") == [("y", "q", "a")]


# Labels.


def test_labels_beside_the_data_or_passed(tmp_path):
    folder = fill(tmp_path / "toy", {f"{split}.tsv": TRAIN for split in SPLITS})
    assert load_graph(folder).label(0) == "a"
    fill(folder, {"entity_labels.tsv": "a\tAnna\nc\tCarl\nz\tnobody\n"})
    graph = load_graph(folder)
    assert [graph.label(i) for i in range(3)] == ["Anna", "b", "Carl"]
    assert graph.source.labels == ""
    assert not any("label" in note for note in graph.notes)
    assert load_graph(folder / "train.tsv").label(0) == "Anna"
    fill(tmp_path, {"mine.tsv": "a\tAlice\n"})
    graph = load_graph(folder, labels=tmp_path / "mine.tsv")
    assert [graph.label(i) for i in range(3)] == ["Alice", "b", "c"]
    assert graph.source.labels == str(tmp_path / "mine.tsv")


def test_labels_that_fit_nothing_are_said(tmp_path):
    folder = fill(tmp_path / "toy", {f"{split}.tsv": TRAIN for split in SPLITS})
    fill(tmp_path, {"mine.tsv": "A\tAlice\n"})
    graph = load_graph(folder, labels=tmp_path / "mine.tsv")
    assert f"{tmp_path / 'mine.tsv'} labels no entity of these data" in graph.notes
    with pytest.raises(UserError, match=r"gone\.tsv: cannot read it: No such file"):
        load_graph(folder, labels=tmp_path / "gone.tsv")
    with pytest.raises(UserError, match=r"toy: cannot read it: Is a directory"):
        load_graph(folder, labels=folder)


# What is not there.


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("wn18r", "unknown data set 'wn18r'; known: world, wn18, .*; and no file"),
        ("gone.tsv", "^gone.tsv: no such file or folder"),
        ("gone/folder", "^gone/folder: no such file or folder"),
        ("~nobody-of-that-name/x", "no such home folder"),
    ],
)
def test_nothing_there(where, message):
    with pytest.raises(UserError, match=message):
        load_graph(where)


def test_the_embedded_data_set_is_found_however_it_is_spelt():
    assert load_graph("World").source == Source("world")


# One file, split.

entities, relations = st.integers(0, 6), st.integers(0, 2)
triple_sets = st.sets(st.tuples(entities, relations, entities), min_size=1, max_size=60)


@settings(deadline=None)  # the twin is compiled
@given(triple_sets, st.integers(0, 5), st.sampled_from([0.05, 0.2, 0.5]))
@example({(0, 0, 0)}, 0, 0.5)
@example({(0, 0, 0), (0, 0, 1)}, 0, 0.5)
def test_a_split_parts_the_triples_and_asks_for_nothing_unseen(triples, seed, share):
    rows = np.array(sorted(triples), dtype=np.int32)
    splits = split_triples(rows, seed, share)
    parts = {name: set(map(tuple, part.tolist())) for name, part in splits.items()}
    assert list(parts) == list(SPLITS)
    assert set.union(*parts.values()) == triples
    assert sum(map(len, splits.values())) == len(triples)
    goal = round(share * len(triples))
    assert goal >= len(parts["valid"]) >= len(parts["test"]) >= len(parts["valid"]) - 1
    seen = {e for h, _, t in parts["train"] for e in (h, t)}
    for h, r, t in parts["valid"] | parts["test"]:
        assert {h, t} <= seen
        assert r in {relation for _, relation, _ in parts["train"]}
    # As many as asked for, unless no further triple could be spared.
    if len(parts["valid"]) + len(parts["test"]) < 2 * goal:
        for h, r, t in parts["train"]:
            rest = parts["train"] - {(h, r, t)}
            left = {e for triple in rest for e in (triple[0], triple[2])}
            assert not ({h, t} <= left and r in {triple[1] for triple in rest})
    with mock.patch.object(splitting, "COMPILED_FROM", 0):  # by the compiled twin
        again = split_triples(rows, seed, share)
    assert all(splits[name].tolist() == again[name].tolist() for name in SPLITS)
    assert all(part.dtype == np.int32 for part in splits.values())


def test_a_dense_file_is_split_90_5_5_by_seed(tmp_path):
    text = "".join(f"e{i} r{k} e{j}\n" for i in range(20) for j in range(20) for k in range(2))
    path = fill(tmp_path, {"dense.txt": text}) / "dense.txt"
    graph, other = load_graph(path, split_seed=1), load_graph(path, split_seed=2)
    assert [len(graph.split(split)) for split in SPLITS] == [720, 40, 40]
    assert graph.notes == ["split by seed 1 into train / valid / test: 720 / 40 / 40 triples"]
    assert graph.source.split_seed == 1
    assert graph.test.tolist() != other.test.tolist()
    assert load_graph(path, split_seed=1).fingerprint == graph.fingerprint != other.fingerprint
    with pytest.raises(UserError, match="split_seed must be at least 0, not -1"):
        load_graph(path, split_seed=-1)


def test_a_header_is_skipped_and_said(tmp_path: Path) -> None:
    file = tmp_path / "graph.tsv"
    file.write_text("Head\tRelation\tTail\n" + "".join(f"a{i}\tr\ta{i + 1}\n" for i in range(9)))
    graph = KnowledgeGraph.load(file)
    assert "Head" not in graph.entities
    assert any("header" in note for note in graph.notes)


def test_a_triple_in_two_splits_is_kept_and_said(tmp_path: Path) -> None:
    graph = load_graph(fill(tmp_path, {"train.tsv": TRAIN, "valid.tsv": "a\tr\tb\n"}))
    assert len(graph.valid) == 1
    assert "1 triple of valid/test stands in another split too; it is kept" in graph.notes
