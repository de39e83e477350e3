"""Names through DuckDB: the same graph and the same errors as by our own reader, arrays kept."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import CSV, SPACED, TSV, UNUSUAL, damaged
from helpers import TINY
from nscaching import KnowledgeGraph, Run, UserError, train, units
from nscaching.cli.main import main
from nscaching.data.graph import SPLITS
from nscaching.data.ingest import ingest, numbering, reading, store
from nscaching.data.mapped_names import MappedNames
from nscaching.data.readers import blocks

BUDGET = "300MiB"
TABLE = "".join(f"e{i * i % 31}\tr{i % 3}\té {i % 17}\n" for i in range(200))


@pytest.fixture(autouse=True)
def _small(tmp_path, monkeypatch):
    """Let the smallest file need DuckDB, in many chunks of few names, with a cache of its own."""
    monkeypatch.setattr(ingest, "TIMES", 10**9)
    monkeypatch.setattr(ingest, "OF_CHUNK", 10**9)
    monkeypatch.setattr(blocks, "BLOCK", 400)
    monkeypatch.setenv("NSCACHING_HOME", str(tmp_path / "home"))


def folder_of(where, files):
    where.mkdir()
    for name, data in files.items():
        (where / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return where


def loaded(path, memory="", **options):
    """Return the graph that a path holds, or the error."""
    try:
        return KnowledgeGraph.load(path, memory=memory, **options)
    except UserError as error:
        return str(error)


def assert_same(path, **options):
    """Compare both readers on a path; return what ours finds."""
    plain, mapped = loaded(path, **options), loaded(path, BUDGET, **options)
    if isinstance(plain, str):
        assert mapped == plain
        return plain
    assert isinstance(mapped.entities, MappedNames)
    assert list(mapped.entities) == plain.entities
    assert mapped.relations == plain.relations
    for split in SPLITS:
        assert mapped.split(split).dtype == np.int32
        assert mapped.split(split).tolist() == plain.split(split).tolist()
    assert mapped.fingerprint == plain.fingerprint
    assert mapped.repeats == plain.repeats
    assert mapped.labels == plain.labels
    told = [note for note in mapped.notes if not re.search("through DuckDB|/graphs/", note)]
    assert told == plain.notes
    assert mapped.labelled.keys() == plain.labelled.keys()
    for split, labelled in plain.labelled.items():
        assert mapped.labelled[split].triples.tolist() == labelled.triples.tolist()
        assert mapped.labelled[split].origin == labelled.origin
        assert not mapped.labelled[split].truth.any()
    return plain


GOOD = {
    "a.tsv": TSV,
    "b.csv": CSV,
    "c.txt": SPACED,
    "d.tsv": UNUSUAL,
    "e.tsv.gz": gzip.compress(TABLE.encode()),
    "f.tsv": "\ufeffhead\trelation\ttail\r\n" + TABLE.replace("\n", "\r\n") + TABLE,
    "g.tsv": "x" * 3000 + "\tr\t" + "x" * 2999 + "\na\tr\tx\n" * 9,
}


@pytest.mark.parametrize("name", GOOD)
def test_a_file_gives_the_same_graph(tmp_path, name):
    path = folder_of(tmp_path / "data", {name: GOOD[name]}) / name
    assert len(assert_same(path, split_seed=3).entities) > 1


def test_a_folder_gives_the_same_graph(tmp_path):
    lines = TABLE.splitlines(keepends=True)
    parts = {"train.tsv": lines[:150], "valid.csv": ["e0,new,e1\n", "e0,new,e1\n"]}
    parts |= {
        "valid_neg.tsv": lines[7:9],
        "test.tsv": [*lines[150:170], *lines[3:5], "n\tr0\te0\n"],
    }
    parts["entity_labels.tsv"] = ["e0\tzero\n", "e1\tone\n", "nobody\tnone\n"]
    graph = assert_same(folder_of(tmp_path / "data", {n: "".join(p) for n, p in parts.items()}))
    assert len(graph.notes) == 5
    (tmp_path / "data" / "test.tsv").unlink()
    assert "has no test file" in " ".join(assert_same(tmp_path / "data").notes)


BAD = {
    "columns": TABLE + "a\tb\n" + TABLE,
    "empty name": TABLE + "a\t \tb\n",
    "bytes": TABLE.encode() + b"a\xff\tr\tb\n",
    "control": TABLE + "a\x01\tr\tb\n",
    "nothing": "\n \n",
    "header only": "head\trelation\ttail\n",
    "commas": "a,r,b\n" * 99 + '"a,r,b\n',
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_gives_the_same_error(tmp_path, what):
    path = folder_of(tmp_path / "data", {"a.tsv": BAD[what]}) / "a.tsv"
    assert assert_same(path).startswith(str(path))
    assert not list(tmp_path.glob("home/graphs/*/*"))


@pytest.mark.parametrize("negatives", ["e0\tr0\te1\ne0\tr0\tq\nq2\tr9\te0\n", "e0\tr9\te0\n"])
def test_an_unknown_name_gives_the_same_error(tmp_path, monkeypatch, negatives):
    files = {"train.tsv": TABLE, "test.tsv": "e0\tr0\te1\n", "test_neg.tsv": negatives}
    folder = folder_of(tmp_path / "data", files)
    assert ": unknown " in assert_same(folder)
    monkeypatch.setattr("nscaching.data.names.MANY", 3)  # too many to look for near ones
    if "q2" in negatives:
        said = "test_neg.tsv:2: unknown entity 'q'; 33 are known, such as e0, é 0, e1; 2 more of"
        assert said in loaded(folder, BUDGET)


def test_damaged_files_give_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "sync", lambda _: None)
    random, kinds = Random(0), set()
    for seeds, name in [([TSV, UNUSUAL], "a.tsv"), ([CSV], "b.csv")] * 12:
        (tmp_path / name).write_bytes(damaged(random, seeds))
        kinds.add(type(assert_same(tmp_path / name)))
    assert kinds == {str, KnowledgeGraph}


# What is kept.


def kept_files(tmp_path):
    return sorted((tmp_path / "home").glob("graphs/*/arrays/*"))


def test_the_second_start_reads_nothing(tmp_path, monkeypatch):
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    first = loaded(path, BUDGET)
    monkeypatch.setattr(numbering.Numbering, "__init__", None)
    again = loaded(path, BUDGET)
    assert again.fingerprint == first.fingerprint
    assert again.notes[0].startswith(f"{path} is unchanged: its arrays are in {tmp_path}/home")
    assert [n for n in again.notes if n not in first.notes] == again.notes[:1]
    monkeypatch.undo()
    assert loaded(path, split_seed=1).fingerprint != first.fingerprint


def test_a_changed_file_is_never_served_from_old_arrays(tmp_path):
    """Not even with the same size, and a time of change that was set back."""
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    said = []
    for text in (TABLE, TABLE.replace("e1\t", "e2\t"), TABLE.replace("e1\t", "e3\t")):
        path.write_text(text)
        os.utime(path, (10**9, 10**9))
        found = loaded(path, BUDGET)
        assert found.fingerprint == loaded(path).fingerprint
        said += [note for note in found.notes if "have changed" in note]
    assert len(said) == 2
    assert len(list((tmp_path / "home" / "graphs").iterdir())) == 1
    changes = iter([lambda: path.write_text(TABLE)])

    def change(*_):
        next(changes, lambda: None)()

    error = loaded(path, BUDGET, split_seed=5, progress=change)
    assert error == f"{path} changed while it was read: read it again"


def test_damaged_arrays_are_made_anew(tmp_path):
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    whole = loaded(path, BUDGET).fingerprint
    names = [file.name for file in kept_files(tmp_path)]
    assert names == [
        "ends.npy", "graph.json", "names.utf8", "order.npy", "test.npy", "train.npy", "valid.npy",
    ]  # fmt: skip
    ways = [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", None]
    some = [*itertools.product(names[1:3] + names[5:6], ways), (names[0], ways[0])]
    for name, way in some:
        file = next(file for file in kept_files(tmp_path) if file.name == name)
        file.unlink() if way is None else file.write_bytes(way(file.read_bytes()))
        again = loaded(path, BUDGET)
        assert again.fingerprint == whole
        told = [note for note in again.notes if "is damaged (" in note]
        assert len(told) == 1
        assert told[0].endswith("): reading the data anew")
        if name != "graph.json":
            assert f"{name} has another size than when it was written" in told[0]
    ids = np.load(file := kept_files(tmp_path)[5])
    np.save(file, ids + 1000)
    assert "its arrays do not fit each other" in " ".join(loaded(path, BUDGET).notes)


# Bad days.

PROGRAM = """
import os, random, resource, signal, sys, time
from nscaching.data.ingest import ingest
from nscaching.data.readers import blocks
from nscaching import KnowledgeGraph, UserError
ingest.TIMES, ingest.OF_CHUNK, blocks.BLOCK = 10**9, 10**9, 1 << 14
import duckdb
from nscaching.data.readers.name_table import BulkNames, NameTable
BulkNames(NameTable())  # loads compiled code: children need not
path, home = sys.argv[1:]

def load(progress=None, name="out"):
    os.environ["NSCACHING_HOME"] = home
    try:
        graph = KnowledgeGraph.load(path, memory="300MiB", progress=progress)
        said = graph.fingerprint, *graph.notes
    except UserError as error:
        said = "error", str(error)
    return "; ".join(said)

def child(work):
    # A process of its own, without the start of Python: nothing has threads yet.
    number = os.fork()
    if not number:
        try:
            work()
        finally:
            os._exit(9)
    return number

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def show(text):
    os.write(1, f"{text}\\n".encode())  # whole lines, whoever else writes
"""


def run_program(tmp_path, body, rows=8_000):
    random = np.random.default_rng(0).integers(0, 9000, (rows, 2)).tolist()
    path = tmp_path / "big.tsv"
    path.write_text("".join(f"e{h}\tr{h % 7}\tt{t}\n" for h, t in random))
    words = [sys.executable, "-c", PROGRAM + body, str(path), str(tmp_path / "home")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return path, done.stdout.splitlines()


KILLS = """
for stage in ("reading big.tsv", "ordering ids", "splitting big.tsv", "keeping arrays"):
    os.waitpid(child(lambda: load(lambda what, *_: what == stage and die())), 0)
    show(stage + ": " + ", ".join(sorted(os.listdir(next(os.scandir(home + "/graphs"))))))
for wait in (0.05, 0.1, 0.2):
    number = child(load)
    time.sleep(wait * (1 + random.random()))
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
for _ in range(2):
    os.waitpid(child(lambda: show(load())), 0)
"""


def test_kills_leave_nothing_that_is_taken_for_whole(tmp_path):
    path, said = run_program(tmp_path, KILLS)
    assert [line.partition(": ")[2] for line in said[:4]] == ["unfinished"] * 4
    assert len(said) == 6
    fingerprint = loaded(path).fingerprint
    assert all(line.startswith(fingerprint) for line in said[4:])
    assert "is unchanged: its arrays are in" in said[5]
    assert [*(tmp_path / "home").glob("graphs/*/*")] == [kept_files(tmp_path)[0].parent]


def test_a_start_after_a_kill_says_that_it_begins_anew(tmp_path):
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    loaded(path, BUDGET)
    arrays = kept_files(tmp_path)[0].parent
    arrays.rename(arrays.with_name("unfinished"))
    left, where = loaded(path, BUDGET), f"{arrays.parent}/unfinished"
    assert left.notes[1] == f"reading was interrupted and left {where}: it begins anew"
    assert left.fingerprint == loaded(path).fingerprint


# A limit for each place where writing may fail: the ids, DuckDB, the arrays.
FULL = """
for kibibytes in (1, 40, 300):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (kibibytes << 10,) * 2)
        show(load())
    os.waitpid(child(limited), 0)
    show(" ".join(os.listdir(next(os.scandir(home + "/graphs")))))
os.waitpid(child(lambda: show(load())), 0)
"""


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    path, said = run_program(tmp_path, FULL)
    unfinished = rf"{tmp_path}/home/graphs/big-\w+/unfinished/work"
    line = rf"error; cannot write {unfinished}\S*: File too large; NSCACHING_HOME may name another"
    for error, left in zip(said[:-1:2], said[1:-1:2], strict=True):
        assert re.match(line, error)
        assert left == ""
    assert said[-1].startswith(loaded(path).fingerprint)


@pytest.mark.parametrize(
    "text",
    [
        'IO Error: Could not write file "names.duckdb": No space left on device',
        "Out of Memory Error: … set by the 'max_temp_directory_size' setting.",
    ],
)
def test_a_full_disk_in_the_words_of_duckdb(text):
    assert numbering._fault_of_disk(text) == "No space left on device"


TWO = """
numbers = [child(lambda: show(load())) for _ in range(3)]
for number in numbers:
    os.waitpid(number, 0)
"""


def test_processes_that_read_the_same_file_at_once_wait_for_each_other(tmp_path):
    path, said = run_program(tmp_path, TWO)
    fingerprint = loaded(path).fingerprint
    assert len(said) == 3
    assert all(line.startswith(fingerprint) for line in said)
    assert sum("another process reads the same data into" in line for line in said) == 2
    assert sum("is unchanged: its arrays are in" in line for line in said) == 2


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    path = folder_of(tmp_path / "data", {"ü" * 99 + ".tsv": TABLE}) / ("ü" * 99 + ".tsv")
    assert isinstance(loaded(path, BUDGET).entities, MappedNames)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "home").touch()
    error = loaded(path, BUDGET)
    assert re.match(
        rf"cannot write {tmp_path}/home/graphs/\S+: Not a directory; NSCACHING_HOME", error
    )


def test_a_budget_that_is_too_small(tmp_path, monkeypatch):
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    least = f"reading through DuckDB takes at least {units.readable(ingest.LEAST)}"
    assert loaded(path, "64MiB").endswith(f"memory allows 64.0 MiB, and {least}")
    monkeypatch.setattr(ingest, "LEAST", 0)
    few = r"DuckDB has half of memory, 2\.5 MiB, too little to number \d+ names: give more"
    assert re.fullmatch(few, loaded(path, "5MiB"))
    monkeypatch.setattr(ingest, "library", lambda: None)
    assert 'duckdb, which is not installed: pip install "nscaching[large]"' in loaded(path, "64MiB")
    monkeypatch.setattr(ingest, "TIMES", 5)
    assert isinstance(loaded(path, "64MiB").entities, list)  # which our own reader can do


def test_too_many_relations_for_the_budget(tmp_path, monkeypatch):
    rows = "".join(f"a\t{'r' * 500}{i}\tb\n" for i in range(200))
    path = folder_of(tmp_path / "data", {"a.tsv": rows}) / "a.tsv"
    monkeypatch.setattr(reading, "LEAST", 90_000)
    assert re.search(
        r"a.tsv: its \d+ relations take more than .*are its columns head", loaded(path, BUDGET)
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [("4GiB", 4 << 30), ("1.5 gb", 3 << 29), ("512 M", 0), ("0MiB", 0), ("9B", 9)],
)
def test_bytes_are_read_with_their_unit(text, count):
    if count:
        assert units.read_bytes(text, "memory") == count
    else:
        with pytest.raises(
            UserError, match="memory: expected bytes with a unit, such as 4GiB, not"
        ):
            units.read_bytes(text, "memory")


# Names in arrays.

texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=4)


@given(st.lists(texts, unique=True, max_size=12), texts)
def test_mapped_names_are_as_a_list(names, other):
    mapped = MappedNames.of(names)
    assert mapped.fits()
    assert (list(mapped), len(mapped), mapped) == (names, len(names), names)
    assert mapped == MappedNames.of(names)
    assert mapped != [*names, "z"]
    for place in range(-len(names), len(names)):
        assert mapped[place] == names[place]
    for part in (slice(2, 5), slice(None, None, 3), slice(None, None, -1), slice(9, 2)):
        assert mapped[part] == names[part]
    for name in [*names, other]:
        assert mapped.find(name) == (names.index(name) if name in names else None)
        assert (name in mapped) == (name in names)
    with pytest.raises(IndexError):
        mapped[len(names)]


def test_entities_are_found_as_in_a_list(tmp_path, monkeypatch):
    text = "http://x/Berlin\tr\thttp://x/bonn\nQ1\tr\tQ2\nQ2\ts\t7\nq3\ts\tQ3\nQ4\tr\tQ1\n"
    labels = "Q1\tOne\nQ2\tTwo\nq3\tTwo\nQ3\tQ2\n"
    folder = folder_of(tmp_path / "data", {"train.tsv": text, "entity_labels.tsv": labels})
    plain, mapped = loaded(folder), loaded(folder, BUDGET)

    def ask(graph, name):
        try:
            return graph.entity_id(name)
        except UserError as error:
            return str(error)

    asked = ["Q1", "One", "one", "Two", "Q2", "BERLIN", "Berlin", "http://x/bonn", "q4", "no", 3]
    for name in asked:
        assert ask(mapped, name) == ask(plain, name), name
    assert [mapped.label(i) for i in range(8)] == [plain.label(i) for i in range(8)]
    assert mapped.known_entity("Q9") is None
    monkeypatch.setattr("nscaching.data.names.MANY", 3)
    mapped = loaded(folder, BUDGET)
    assert [ask(mapped, name) for name in asked[:2]] == [ask(plain, name) for name in asked[:2]]
    known = "8 are known, such as http://x/Berlin, http://x/bonn, Q1"
    assert ask(mapped, "one") == f"unknown entity 'one'; {known}"


# Runs.


@pytest.fixture
def run(tmp_path):
    """Train on a graph with mapped names."""
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    return train(loaded(path, BUDGET), out=tmp_path / "run", **TINY)


def test_a_run_keeps_its_names_in_arrays_and_is_the_same(tmp_path, run):
    plain = train(loaded(tmp_path / "data" / "a.tsv"), out=tmp_path / "plain", **TINY)
    for name in ("model.safetensors", "triples.safetensors", "metrics.jsonl"):
        mine, theirs = ((tmp_path / each / name).read_bytes() for each in ("run", "plain"))
        if name == "metrics.jsonl":
            mine, theirs = (
                re.sub(rb'"[a-z_]*seconds": [^,}]+', b"", text) for text in (mine, theirs)
            )
        assert mine == theirs
    assert json.loads((tmp_path / "run" / "vocabulary.json").read_text())["entities"] == []
    again = Run.load(tmp_path / "run")
    assert isinstance(again.graph.entities, MappedNames)
    assert again.graph.fingerprint == plain.graph.fingerprint
    asked = {"head": "e0", "relation": "r0", "top": 3}
    assert again.predict(**asked) == plain.predict(**asked)
    train(again.graph, out=tmp_path / "run", overwrite=True, **TINY)  # all are files of a run


def test_a_run_with_damaged_names(tmp_path, run):
    file = tmp_path / "run" / "entities.safetensors"
    data = file.read_bytes()
    for wrong in (data[:-1], data.replace(b'"order"', b'"other"'), data[:-9] + b"\xff" * 9):
        file.write_bytes(wrong)
        with pytest.raises(UserError, match=r"entities\.safetensors: (not the names|cannot read)"):
            Run.load(tmp_path / "run")


def test_the_command_line_says_which_reader_reads(tmp_path, capsys):
    path = folder_of(tmp_path / "data", {"a.tsv": TABLE}) / "a.tsv"
    said = []
    for _ in range(2):
        main(["relations", str(path), "--memory", BUDGET])
        said.append(" ".join(capsys.readouterr().err.split()))
    assert "memory, --memory allows 300.0 MiB: through DuckDB" in said[0]
    assert f"{path} is unchanged: its arrays are in" in said[1]
    with pytest.raises(SystemExit):
        main(["relations", str(path), "--memory", "4"])
    assert "--memory: expected bytes with a unit, such as 4GiB" in capsys.readouterr().err
