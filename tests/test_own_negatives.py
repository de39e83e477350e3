"""Files of false triples beside the splits: read in any format, used, counted, never ignored."""

from __future__ import annotations

import gzip
import importlib.util
import re

import numpy as np
import pytest

from helpers import TINY, graph_of, new_model, random_graph
from nscaching import KnowledgeGraph, Run, UserError, train
from nscaching.cli.main import main
from nscaching.data.graph import Labelled
from nscaching.evaluation.classify import classify, labelled_pairs
from nscaching.evaluation.labelled import has_validation, labelled_triples

SPLITS = {
    "train": [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a"), ("d", "s", "b")],
    "valid": [("a", "r", "c"), ("d", "r", "c")],
    "test": [("c", "s", "b")],
}
FALSE = [("a", "r", "d"), ("b", "s", "b")]
IDS = {"entity2id.txt": "4\na\t0\nb\t1\nc\t2\nd\t3\n", "relation2id.txt": "2\nr\t0\ns\t1\n"}

rdf = pytest.mark.skipif(not importlib.util.find_spec("pyoxigraph"), reason="no pyoxigraph")


def written(suffix, triples):
    if suffix in (".nt", ".nq", ".ttl"):
        if suffix == ".ttl":
            return "@prefix : <x:> .\n" + "".join(f":{h} :{r} :{t} .\n" for h, r, t in triples)
        return "".join(f"<x:{h}> <x:{r}> <x:{t}> .\n" for h, r, t in triples)
    separator = {".tsv": "\t", ".csv": ",", ".txt": " "}[suffix]
    return "".join(separator.join(triple) + "\n" for triple in triples)


def folder_of(path, suffix=".tsv", **more):
    """Write the splits and, by name, further files."""
    path.mkdir()
    for split, triples in SPLITS.items():
        (path / f"{split}{suffix}").write_text(written(suffix, triples))
    return with_files(path, **more)


def with_files(path, **files):
    for name, text in files.items():
        name, _, suffix = name.partition("__")
        file = path / f"{name}.{suffix.replace('_', '.')}"
        file.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    return path


def named(graph, triples):
    short = [name.rpartition(":")[2] for name in graph.entities]
    relations = [name.rpartition(":")[2] for name in graph.relations]
    return [(short[h], relations[r], short[t]) for h, r, t in triples.tolist()]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("end", ["_neg", "_negatives"])
@pytest.mark.parametrize(
    "suffix",
    [".tsv", ".csv", ".txt", *(pytest.param(s, marks=rdf) for s in (".nt", ".ttl", ".nq"))],
)
def test_every_format_of_the_splits(tmp_path, suffix, end, packed):
    folder = folder_of(tmp_path / "toy", suffix)
    data = written(suffix, FALSE).encode()
    name = f"test{end}{suffix}{packed}"
    (folder / name).write_bytes(gzip.compress(data) if packed else data)
    graph = KnowledgeGraph.load(folder)
    assert list(graph.labelled) == ["test"]
    found = labelled_triples(graph, "test")
    assert named(graph, found.triples[~found.truth]) == FALSE
    assert named(graph, found.triples[found.truth]) == SPLITS["test"]
    assert (found.origin, found.left_out) == (name, 0)
    assert labelled_triples(graph, "valid").origin.startswith("made by seed")


def test_the_formats_may_differ_and_a_header_is_no_triple(tmp_path):
    text = "head,relation,tail\na,r,d\n\nb,s,b\n"
    graph = KnowledgeGraph.load(folder_of(tmp_path / "toy", valid_negatives__csv=text))
    assert named(graph, graph.labelled["valid"].triples) == FALSE
    assert any("taken for a header" in note for note in graph.notes)


def test_negatives_add_no_names_and_change_no_fingerprint(tmp_path):
    without = KnowledgeGraph.load(folder_of(tmp_path / "toy"))
    graph = KnowledgeGraph.load(with_files(tmp_path / "toy", test_neg__tsv="d\tr\ta\n"))
    assert (graph.entities, graph.relations) == (without.entities, without.relations)
    assert graph.fingerprint == without.fingerprint


def test_a_train_file_that_is_split_may_have_negatives(tmp_path):
    lines = "".join(f"e{i}\tr\te{(3 * i + j) % 30}\n" for i in range(30) for j in range(4))
    (tmp_path / "train.tsv").write_text(lines)
    (tmp_path / "valid_neg.tsv").write_text("e0\tr\te29\n")
    graph = KnowledgeGraph.load(tmp_path)
    found = labelled_triples(graph, "valid")
    assert found.triples[found.truth].tolist() == graph.valid.tolist()
    assert named(graph, found.triples[~found.truth]) == [("e0", "r", "e29")]


# OpenKE.


@pytest.fixture
def openke(tmp_path):
    splits = {"train2id.txt": "3\n0 1 0\n1 2 0\n2 0 1\n", "valid2id.txt": "1\n0 2 0\n"}
    for name, text in (IDS | splits | {"test2id.txt": "1\n2 1 1\n"}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder_of_openke_may_have_negatives_by_name(openke):
    (openke / "test_negatives.tsv").write_text("a\tr\td\n")
    (openke / "valid_negatives.txt").write_text("0 2 0 1\n0 3 0 -1\n")
    graph = KnowledgeGraph.load(openke)
    assert labelled_triples(graph, "test").triples.tolist() == [[2, 1, 1], [0, 0, 3]]
    assert graph.labelled["valid"].truth.tolist() == [True, False]
    (openke / "test_negatives.tsv").write_text("a\tr\tx\n")
    with pytest.raises(UserError, match=r"test_negatives\.tsv:1: unknown entity 'x'; known: a, b"):
        KnowledgeGraph.load(openke)


def test_ids_without_labels_are_refused(openke):
    (openke / "test_negatives.txt").write_text("0 3 0\n")
    with pytest.raises(UserError, match=r"test_negatives\.txt:1: expected 4 integers, found 3"):
        KnowledgeGraph.load(openke)


def test_labels_that_are_all_false_take_the_true_triples_of_the_split(openke):
    (openke / "test_neg.txt").write_text("0 3 0 -1\n")
    graph = KnowledgeGraph.load(openke)
    assert labelled_triples(graph, "test").truth.tolist() == [True, False]


# Bad files.


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("test_neg__tsv", "", r"test_neg\.tsv: the file is empty$"),
        ("test_neg__tsv", "a\tr\n", r"test_neg\.tsv:1: expected 3 columns .*, found 2"),
        ("test_neg__tsv", "a\tr\td\t-1\n", r"test_neg\.tsv:1: expected 3 columns .*, found 4"),
        ("test_neg__tsv", "a\tr\td\n\na\tr\tx\n", r"neg\.tsv:3: unknown entity 'x'; known: a, b"),
        ("test_neg__tsv", "a\tr\td\nb\tx\ta\n", r"neg\.tsv:2: unknown relation 'x'; known: r, s$"),
        ("test_neg__tsv_gz", "r\tr\ta\n", r"test_neg\.tsv\.gz:1: unknown entity 'r'"),
        ("test_neg__csv", 'a,r,d\n"x, y",r,z\n', r"csv:2: unknown entity 'x, y'.*; 1 more of its"),
        ("valid_neg__txt", "a r d\na r  ab\n", r"valid_neg\.txt:2: unknown entity 'ab'"),
        ("test_neg__tsv", "a\tr\t\xff\n", r"test_neg\.tsv:1: unknown entity 'ÿ'"),
    ],
)
def test_a_bad_file_is_one_line_with_its_place(tmp_path, name, text, message):
    folder = folder_of(tmp_path / "toy", **{name: text})
    with pytest.raises(UserError, match=message) as error:
        KnowledgeGraph.load(folder)
    assert "\n" not in str(error.value)


@rdf
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("test_neg__nt", "<x:a> <x:r> <x:d> .\n# <y:e>\n<x:a> <x:r> <x:new> .\n", 3),
        ("test_neg__ttl", "@prefix : <x:> .\n:a :r :newer, :d .\n:a :r :new .\n", 2),
        ("test_neg__ttl", "@prefix p: <x:> .\np:a p:r\n p:d ,\n p:new .\n", 4),
    ],
)
def test_a_bad_file_of_rdf(tmp_path, name, text, line):
    folder = folder_of(tmp_path / "toy", ".nt", **{name: text})
    with pytest.raises(UserError, match=rf"{line}: unknown entity 'x:new") as error:
        KnowledgeGraph.load(folder)
    assert "\n" not in str(error.value)


def test_two_files_are_a_question(tmp_path):
    files = {"test_neg__tsv": "a\tr\td\n", "test_negatives__csv": "a,r,d\n"}
    with pytest.raises(UserError, match=r"which one .*\? test_neg\.tsv, test_negatives\.csv$"):
        KnowledgeGraph.load(folder_of(tmp_path / "toy", **files))


def test_negatives_without_a_split_have_no_positives(tmp_path):
    folder = folder_of(tmp_path / "toy", valid_neg__tsv="a\tr\td\n")
    (folder / "valid.tsv").unlink()
    graph = KnowledgeGraph.load(folder)
    assert not has_validation(graph)
    with pytest.raises(UserError, match="valid split of toy is empty"):
        classify(new_model("TransE", 4, 2), graph)


# Negatives that are known triples.


def test_a_negative_that_is_known_is_left_out_and_counted(tmp_path, capsys):
    text = "a\tr\td\na\tr\tb\nd\tr\tc\nc\ts\tb\nb\ts\tb\n"  # the middle three are in the splits
    folder = folder_of(tmp_path / "toy", test_neg__tsv=text)
    graph = KnowledgeGraph.load(folder)
    found = labelled_triples(graph, "test")
    assert named(graph, found.triples[~found.truth]) == FALSE
    assert found.left_out == 3
    report = classify(new_model("TransE", 4, 2), graph)
    assert (report["true"], report["false"], report["known_negatives_left_out"]) == (1, 2, 3)
    assert report["negatives"] == "test_neg.tsv"
    assert report["validation"]["negatives"].startswith("made by seed")
    train(graph, out=tmp_path / "run", **TINY)
    main(["classify", str(tmp_path / "run")])
    said = " ".join(capsys.readouterr().out.split())
    assert "2 negatives of test_neg.tsv; 3 more are known triples and left out" in said
    assert re.search(r"thresholds: from validation, \d negatives made by seed 2019", said)


def test_labels_that_contradict_the_splits_are_left_out():
    graph = graph_of([(0, 0, 1)], [(1, 0, 0)], [(2, 0, 1), (0, 0, 2)])
    rows = np.array([(2, 0, 1), (0, 0, 1), (1, 0, 1), (2, 0, 2)], dtype=np.int32)
    graph.labelled["test"] = Labelled(rows, np.array([True, False, False, True]), "test_neg.txt")
    found = labelled_triples(graph, "test")
    assert found.triples.tolist() == [[2, 0, 1], [1, 0, 1], [2, 0, 2]]
    assert found.truth.tolist() == [True, False, True]  # the last is true by the file alone
    assert found.left_out == 1


def test_nothing_but_known_negatives_is_an_error(tmp_path):
    graph = KnowledgeGraph.load(folder_of(tmp_path / "toy", test_neg__tsv="a\tr\tb\nd\ts\tb\n"))
    with pytest.raises(UserError, match=r"test_neg\.tsv: all its 2 negatives are known triples"):
        labelled_triples(graph, "test")


def test_which_triples_the_graph_holds():
    graph = random_graph()
    known = {tuple(t) for s in ("train", "valid", "test") for t in graph.split(s).tolist()}
    every = np.array([(h, r, t) for h in range(12) for r in range(3) for t in range(12)], np.int32)
    assert graph.holds(every).tolist() == [tuple(triple) in known for triple in every.tolist()]
    assert graph.holds(every[:0]).tolist() == []


def test_triples_of_more_keys_and_entities_than_32_bits_number():
    ring = np.arange(50_000, dtype=np.int32)
    train = np.stack([ring, np.zeros_like(ring), np.roll(ring, 1)], axis=1)
    graph = graph_of(train, train[-3:])
    assert graph.holds(train).all()
    assert not graph.holds(train[:, ::-1]).any()
    assert graph.audit().of_split("valid")["repeated"] == 3


# Where they go.


def test_the_run_keeps_them_and_json_says_so(tmp_path, ask):
    files = {"valid_negatives__tsv": "a\tr\td\n", "test_negatives__csv": "b,s,b\na,r,d\n"}
    graph = KnowledgeGraph.load(folder_of(tmp_path / "toy", **files))
    train(graph, out=tmp_path / "run", **TINY)
    loaded = Run.load(tmp_path / "run", "cpu").graph
    for split in ("valid", "test"):
        ours, theirs = labelled_triples(graph, split), labelled_triples(loaded, split)
        assert ours.triples.tolist() == theirs.triples.tolist()
        assert (ours.truth.tolist(), ours.origin) == (theirs.truth.tolist(), theirs.origin)
    report = ask("classify", str(tmp_path / "run"))
    assert (report["negatives"], report["false"], report["true"]) == ("test_negatives.csv", 2, 1)
    assert report["validation"] == {
        "true": 2, "false": 1, "negatives": "valid_negatives.tsv", "known_negatives_left_out": 0,
    }  # fmt: skip


def test_linking_takes_them_too():
    graph = graph_of([(0, 0, 1), (2, 1, 3)], [(1, 0, 2)], [(3, 0, 4), (1, 1, 4)])
    rows = np.array([(4, 0, 0), (4, 1, 0), (1, 0, 2), (2, 1, 3)], dtype=np.int32)
    graph.labelled["test"] = Labelled(rows, np.zeros(4, dtype=bool), "test_neg.tsv")
    pairs = labelled_pairs(graph, "test", 0)
    assert pairs.triples.tolist() == [[3, 0, 4], [4, 0, 0]]
    assert pairs.truth.tolist() == [True, False]
    assert pairs.left_out == 1  # of this relation


def test_a_choice_of_them_is_the_same_each_time():
    graph = random_graph(valid=20)
    rows = np.array([(h, 0, t) for h in range(12) for t in range(12)], dtype=np.int32)
    false = rows[~graph.holds(rows)]
    graph.labelled["valid"] = Labelled(false, np.zeros(len(false), dtype=bool), "x")
    few, again = labelled_triples(graph, "valid", 7), labelled_triples(graph, "valid", 7)
    assert (few.truth.sum(), (~few.truth).sum()) == (7, 7)
    assert np.array_equal(few.triples, again.triples)
    every = labelled_triples(graph, "valid")
    place = {tuple(triple): i for i, triple in enumerate(every.triples.tolist())}
    chosen = [place[tuple(triple)] for triple in few.triples.tolist()]
    assert chosen == sorted(chosen)
    assert len(labelled_triples(random_graph(valid=20), "valid", 7).truth) == 14  # made ones
