"""A run folder stands on its own, gives back what went in, and says what is wrong with it."""

from __future__ import annotations

import json
import os
import shutil
import tomllib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import Hearing
from nscaching import KnowledgeGraph, Run, TrainConfig, train
from nscaching.data.graph import SPLITS, Labelled, Source
from nscaching.errors import UserError
from nscaching.files import PARTIAL, CannotWriteError, replacing
from nscaching.runs.folder import RunFolder
from nscaching.runs.plots import plot_run

TINY = {
    "model": "TransE", "dim": 4, "epochs": 2, "n1": 4, "n2": 4, "threads": 1,
    "validate_every": 1, "patience": 0, "lr": 0.1,
}  # fmt: skip
FILES = {
    "config.toml",
    "vocabulary.json",
    "triples.safetensors",
    "metrics.jsonl",
    "model.safetensors",
    "cache.safetensors",
    "README.md",
    "training.png",
    "report.html",
    "calibration.json",
}
ODD = [
    "[bold]x[/bold]",
    'say "hi"',
    "$5 and $6",
    "tab\there",
    "👩‍👧 🙂",
    "שלום עולם",
    "a\\b",
    "{x}",
]
"""Names that some program would not show as they are."""


def some_graph(**rest):
    random = np.random.default_rng(1)
    n = len(ODD)
    chosen = random.choice(n * 2 * n, size=50, replace=False)
    triples = np.stack(np.unravel_index(chosen, (n, 2, n)), axis=1)
    splits = dict(zip(SPLITS, np.split(triples, [40, 45]), strict=True))
    settings = {"name": "odd $names$ 🙂", "labels": {"a\\b": "[red]label[/red] ۞"}} | rest
    return KnowledgeGraph.from_arrays(ODD, ["$r$", "[link]s"], splits, **settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Train once; tests that change the folder take a copy."""
    path = tmp_path_factory.mktemp("runs") / "finished"
    return train(some_graph(), out=path, **TINY)


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished.path, tmp_path / "copy")


def contents(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def test_the_files(finished):
    assert {file.name for file in finished.path.iterdir()} == FILES
    assert (finished.path / "training.png").read_bytes().startswith(b"\x89PNG")
    card = (finished.path / "README.md").read_text(encoding="utf-8")
    assert "odd $names$ 🙂" in card
    assert f"{finished.result('test')['mrr']:.4f}" in card
    values = tomllib.loads((finished.path / "config.toml").read_text(encoding="utf-8"))
    assert values.pop("record")["data_fingerprint"] == finished.graph.fingerprint
    for key in ("data", "labels", "split_seed", "literals"):
        values.pop(key)
    assert values == finished.config.to_dict()


@pytest.mark.parametrize("sampler", ["bernoulli", "uniform"])
def test_only_a_sampler_with_a_cache_writes_one(tmp_path, sampler):
    run = train(some_graph(), out=tmp_path / "run", sampler=sampler, **TINY)
    assert {file.name for file in run.path.iterdir()} == FILES - {"cache.safetensors"}
    assert Run.load(run.path).sampler_state == {}


def test_the_lines_of_metrics(finished):
    lines = (finished.path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert records == finished.history
    epochs = [record for record in records if "split" not in record]
    assert [record["epoch"] for record in epochs] == [1, 2]
    for record in epochs:
        assert set(record) == {"epoch", "loss", "nonzero_loss", "gradient_norm", "seconds"}
        assert all(np.isfinite(value) for value in record.values())
    rankings = [(record["split"], record["epoch"]) for record in records if "split" in record]
    assert rankings == [("valid", 1), ("valid", 2), ("test", finished.best_epoch)]


def test_a_loaded_run_is_the_run(finished, copy):
    loaded = Run.load(copy)
    assert loaded.graph.entities == ODD
    assert (loaded.graph.name, loaded.graph.labels, loaded.graph.relations) == (
        finished.graph.name,
        finished.graph.labels,
        finished.graph.relations,
    )
    assert loaded.graph.fingerprint == finished.graph.fingerprint
    assert loaded.graph.source == finished.graph.source
    assert (loaded.config, loaded.history) == (finished.config, finished.history)
    assert (loaded.best_epoch, loaded.path) == (finished.best_epoch, copy)
    assert loaded.sampler_state.keys() == {"head_cache", "tail_cache"}
    for name, table in finished.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], table)
    for split in SPLITS:
        assert loaded.evaluate(split) == finished.evaluate(split)
    assert loaded.evaluate("test")["mrr"] == finished.result("test")["mrr"]
    assert loaded.classify() == finished.classify()
    question = {"head": "[RED]label[/red] ۞", "relation": "$r$"}
    assert loaded.predict(**question) == finished.predict(**question)


def test_what_is_saved_again_is_the_same(finished, tmp_path):
    before = contents(finished.path)
    loaded = Run.load(finished.path)
    assert loaded.save(tmp_path / "again") == tmp_path / "again"
    after = contents(tmp_path / "again")
    assert after.keys() == before.keys()
    same = {"vocabulary.json", "triples.safetensors", "metrics.jsonl", "config.toml"}
    assert {name for name in FILES if before[name] == after[name]} >= same
    for name in ("model.safetensors", "cache.safetensors"):
        old, new = load_file(finished.path / name), load_file(tmp_path / "again" / name)
        assert old.keys() == new.keys()
        assert all(torch.equal(old[key], new[key]) for key in old)


def test_labelled_triples_are_kept(tmp_path):
    rows = np.array([(0, 0, 1), (1, 1, 0)], dtype=np.int32)
    part = Labelled(rows, np.array([True, False]), "test_neg.txt")
    run = train(some_graph(labelled={"test": part}), out=tmp_path / "run", **TINY)
    loaded = Run.load(run.path).graph.labelled
    assert loaded.keys() == {"test"}
    assert loaded["test"].triples.tolist() == rows.tolist()
    assert loaded["test"].truth.tolist() == [True, False]
    assert loaded["test"].origin == "test_neg.txt"


def test_a_graph_without_valid_and_test(tmp_path):
    graph = KnowledgeGraph.from_arrays(list("abcd"), ["r"], {"train": [(0, 0, 1), (2, 0, 3)]})
    run = Run.load(train(graph, out=tmp_path / "run", **TINY).path)
    assert (run.best_epoch, run.result("valid"), run.result("test")) == (2, None, None)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Parameters of epoch 2, the last;" in card
    assert "| split |" not in card  # a table without rows
    with pytest.raises(UserError, match="the test split of graph is empty"):
        run.evaluate()


# A folder that exists.


def test_a_path_that_exists_is_left_alone(finished, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "folder", tmp_path / "file", tmp_path / "link", finished.path):
        before = contents(finished.path)
        with pytest.raises(UserError, match="exists already; choose another out, or say over"):
            train(some_graph(), out=path, **TINY)
        assert contents(finished.path) == before
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"notes.txt": "mine"},
        {"config.toml": "mine = 1"},
        {"config.toml": "", "metrics.jsonl": "", "src/main.py": "mine"},
        {"config.toml": "", "vocabulary.json": "", "thesis.tex": "mine"},
        {"config.toml": "", "vocabulary.json": "", "figures/1.txt": "mine"},
    ],
)
def test_overwrite_keeps_off_what_is_not_a_run(tmp_path, files):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.raises(UserError, match="not overwritten"):
        train(some_graph(), out=folder, overwrite=True, **TINY)
    left = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert left == files


def test_overwrite_keeps_off_a_file_and_a_link(copy, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(copy)
    before = contents(copy)
    for path in (tmp_path / "file", tmp_path / "link"):
        with pytest.raises(UserError, match="is not a run folder, so it is not overwritten"):
            train(some_graph(), out=path, overwrite=True, **TINY)
    assert contents(copy) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_overwrite_replaces_a_run_whole(copy):
    (copy / "model.safetensors.partial").write_bytes(b"left by a crash")
    run = train(some_graph(), out=copy, overwrite=True, sampler="uniform", **TINY)
    assert {file.name for file in copy.iterdir()} == FILES - {"cache.safetensors"}
    assert Run.load(copy).history == run.history


def test_a_run_may_start_from_the_run_that_it_replaces(copy):
    run = train(some_graph(), out=copy, overwrite=True, pretrain=str(copy), **TINY)
    assert Run.load(copy).history == run.history


def test_a_line_without_an_end(tmp_path):
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.truncate(1 << 31)  # zeros that take no room
    with pytest.raises(UserError, match=r"metrics.jsonl:1: the line is longer than 67,108,864 by"):
        RunFolder(tmp_path).read_history()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot write the run folder: Not a directory"):
        train(some_graph(), out=tmp_path / "file" / "run", **TINY)
    with pytest.raises(UserError, match="no such home folder"):
        train(some_graph(), out="~nobody-of-that-name/run", **TINY)
    with pytest.raises(UserError, match=r"cannot write the run folder: .*surrogates not allowed"):
        train(some_graph(source=Source("\udcff")), out=tmp_path / "new", **TINY)


# A folder that is damaged.


def no_file(name):
    return lambda folder: (folder / name).unlink()


def text(name, new):
    return lambda folder: (folder / name).write_text(new, encoding="utf-8")


def cut(name):
    """Return what keeps the first half of a file."""

    def damage(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return damage


def line(name, old, new):
    """Return what changes a piece of a file."""

    def damage(folder):
        before = (folder / name).read_text(encoding="utf-8")
        assert old in before
        (folder / name).write_text(before.replace(old, new, 1), encoding="utf-8")

    return damage


def names(**changes):
    """Return what changes the vocabulary."""

    def damage(folder):
        path = folder / "vocabulary.json"
        values = json.loads(path.read_text(encoding="utf-8")) | changes
        kept = {key: value for key, value in values.items() if value is not None}
        path.write_text(json.dumps(kept), encoding="utf-8")

    return damage


def triples(**changes):
    """Return what changes the stored triples; None takes a split away."""

    def damage(folder):
        path = folder / "triples.safetensors"
        values = load_file(path) | changes
        save_file({key: value for key, value in values.items() if value is not None}, path)

    return damage


def model(metadata):
    def damage(folder):
        path = folder / "model.safetensors"
        save_file(load_file(path), path, metadata)

    return damage


RECORD = '{"epoch": 1, "loss": 1.0, "seconds": 0.1}\n'


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "copy does not exist"),
        (no_file("config.toml"), "copy is not a run folder: it has no config.toml"),
        (text("config.toml", "dim = "), "config.toml: cannot read it: Invalid value"),
        (line("config.toml", "dim = 4", "dim = -4"), "config.toml: dim must be at least 1"),
        (line("config.toml", "dim = 4", "dim = 'x'"), "config.toml: dim must be of type int"),
        (line("config.toml", "dim = 4", "dime = 4"), "config.toml: unknown key 'dime'; nearest"),
        (line("config.toml", "dim = 4", "dim = 5"), "copy: model and configuration differ"),
        (line("config.toml", "TransE", "TransH"), "copy: model and configuration differ"),
        (line("config.toml", "TransE", "TransX"), "unknown model 'TransX'; known: ANALOGY, "),
        (line("config.toml", "TransE", "no_such:X"), "outside the package: model = 'no_such:X'"),
        (line("config.toml", 'data = ""', "data = 3"), "config.toml: data must be of type str"),
        (no_file("vocabulary.json"), "vocabulary.json: cannot read it: No such file"),
        (cut("vocabulary.json"), "vocabulary.json: cannot read it: "),
        (text("vocabulary.json", "[" * 99999), "vocabulary.json: cannot read it: "),
        (text("vocabulary.json", "[1, 2]"), "vocabulary.json: not the vocabulary of a run"),
        (names(entities=None), "vocabulary.json: not the vocabulary of a run"),
        (names(entities=["a", "b", "a"]), "vocabulary.json: two entities have the same name: 'a'$"),
        (names(relations=["r", "r"]), "vocabulary.json: two relations have the same name: 'r'$"),
        (names(more=1), "vocabulary.json: not the vocabulary of a run"),
        (names(entities=[1, 2]), "vocabulary.json: not the vocabulary of a run"),
        (names(relations="ab"), "vocabulary.json: not the vocabulary of a run"),
        (names(labels={"a": 1}), "vocabulary.json: not the vocabulary of a run"),
        (names(name=None), "vocabulary.json: not the vocabulary of a run"),
        (names(entities=["a"]), "triples.safetensors: its train triples do not fit the names"),
        (names(relations=["a"]), "triples.safetensors: its train triples do not fit the names"),
        (
            names(entities=[*ODD, "new"]),
            "configuration differ: .* size mismatch for entity",
        ),
        (no_file("triples.safetensors"), "triples.safetensors: cannot read it: No such file"),
        (cut("triples.safetensors"), "triples.safetensors: cannot read it: "),
        (triples(test=None), "triples.safetensors: its test triples do not fit"),
        (triples(test=torch.zeros(3, 2).int()), "triples.safetensors: its test triples do not"),
        (triples(test=torch.zeros(3, 3)), "triples.safetensors: its test triples do not fit"),
        (triples(valid=torch.full((1, 3), -1).int()), "its valid triples do not fit the names"),
        (triples(test_labelled=torch.ones(1, 3).int()), "its test_labelled triples do not fit"),
        (no_file("model.safetensors"), "copy holds no model: its training did not get that far"),
        (cut("model.safetensors"), "model.safetensors: cannot read it: "),
        (text("model.safetensors", ""), "model.safetensors: cannot read it: "),
        (model({}), "model.safetensors: does not say of which epoch it is"),
        (model({"epoch": "x"}), "model.safetensors: does not say of which epoch it is"),
        (cut("cache.safetensors"), "cache.safetensors: cannot read it: "),
        (no_file("metrics.jsonl"), "metrics.jsonl: cannot read it: No such file"),
        (text("metrics.jsonl", RECORD + '{"epoch": 2, "lo'), "metrics.jsonl:2: cannot read it"),
        (text("metrics.jsonl", RECORD + "\n7\n"), "metrics.jsonl:3: not a line of metrics"),
        (text("metrics.jsonl", "{}\n"), "metrics.jsonl:1: not a line of metrics"),
        (line("metrics.jsonl", '"loss"', '"gain"'), "metrics.jsonl:1: not a line of metrics"),
        (line("metrics.jsonl", '"mrr"', '"mmr"'), "metrics.jsonl:2: not a line of metrics"),
        (line("metrics.jsonl", '"seconds": ', '"seconds": "1", "s": '), "metrics.jsonl:1: not a"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(copy, damage, message):
    damage(copy)
    with pytest.raises(UserError, match=message) as error:
        Run.load(copy)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text(copy):
    for name in ("metrics.jsonl", "vocabulary.json", "config.toml"):
        (copy / name).write_bytes(b"\xff\xfe\n")
        with pytest.raises(UserError, match=f"{name}: cannot read it: .*can't decode"):
            Run.load(copy)


def test_a_run_does_without_card_plot_and_cache(copy, finished):
    for name in ("README.md", "training.png", "report.html", "cache.safetensors"):
        (copy / name).unlink()
    assert Run.load(copy).evaluate() == finished.evaluate()


def test_a_folder_is_readable_while_training_goes_on(tmp_path):
    seen = []

    def observe(record):
        if record.get("split") == "valid":
            seen.append(Run.load(tmp_path / "run").best_epoch)

    run = train(some_graph(), out=tmp_path / "run", listener=Hearing(record=observe), **TINY)
    assert len(seen) == 2
    assert seen[-1] == run.best_epoch


def test_read_config_needs_no_model(tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = TrainConfig.from_dict(TINY)
    folder.create(some_graph(source=Source("x.tsv", "l.tsv", 3)), config)
    assert folder.read_config() == (Source("x.tsv", "l.tsv", 3), config)


def test_a_run_that_fails_leaves_the_one_it_was_to_replace(copy):
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    with pytest.raises(UserError, match=r"the loss is|diverged"):
        train(some_graph(), out=copy, overwrite=True, **TINY | {"model": "ComplEx", "lr": 1e30})
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_notes_and_what_was_left_open_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = TINY | {"model": "ComplEx", "penalty_norm": "l2"}  # and the penalty is left open
    run = train(some_graph(notes=["hear this"]), **settings)
    path = run.save()
    assert path.parent.name == "runs"
    assert "hear this" in Run.load(path).graph.notes
    assert "- hear this" in (path / "README.md").read_text()
    record = tomllib.loads((path / "config.toml").read_text())["record"]
    assert (record["penalty"], record["device"], record["threads"]) == (0.1, "cpu", 1)
    assert run.save() != path  # an unnamed run takes the next free name


def test_training_gives_the_threads_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    train(some_graph(), **TINY)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_a_record_that_is_no_table_is_said(copy):
    config = copy / "config.toml"
    config.write_text("record = 3\n" + config.read_text().split("[record]")[0])
    with pytest.raises(UserError, match="record must be a table, not 3"):
        Run.load(copy)


def test_a_run_that_cannot_start_gives_the_threads_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(UserError, match="n1 99 is larger"):
        train(some_graph(), **TINY | {"n1": 99})
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


# One way to write a file.


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_that_cannot_be_finished_changes_nothing(tmp_path, error, shared):
    path = tmp_path / "file"
    path.write_text("before")
    kind = CannotWriteError if isinstance(error, OSError) else KeyboardInterrupt

    def write_half():
        with replacing(path, shared=shared) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(kind) as raised:
        write_half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    if kind is CannotWriteError:
        assert str(raised.value) == f"cannot write {path}: No space left on device"


def test_an_unfinished_file_of_before_is_no_obstacle_and_a_link_is_not_followed(tmp_path):
    path, outside = tmp_path / "file", tmp_path / "outside"
    outside.write_text("a secret")
    for write in (lambda p: p.write_text("half"), lambda p: p.symlink_to(outside)):
        write(tmp_path / f"file{PARTIAL}")
        with replacing(path) as partial:
            partial.write_text("whole")
        assert path.read_text() == "whole"
        assert outside.read_text() == "a secret"
        assert sorted(tmp_path.iterdir()) == [path, outside]


def test_in_a_shared_folder_no_file_of_the_user_is_taken_for_an_unfinished_one(tmp_path):
    mine = tmp_path / f"file{PARTIAL}"
    mine.write_text("mine")
    with replacing(tmp_path / "file", shared=True) as partial:
        assert partial != mine
        partial.write_text("whole")
    assert mine.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", mine]


def test_a_durable_file_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path, monkeypatch
):
    path, seen = tmp_path / "file", []
    inner = os.fsync
    monkeypatch.setattr("os.fsync", lambda file: seen.append(path.exists()) or inner(file))
    for durable, expected in ((False, []), (True, [False, True])):
        path.unlink(missing_ok=True)
        with replacing(path, durable=durable) as partial:
            partial.write_text("whole")
        assert seen == expected


def test_a_plot_that_cannot_be_written_is_one_line(finished, tmp_path, monkeypatch):
    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", no_room)
    path = tmp_path / "training.png"
    with pytest.raises(CannotWriteError, match=r"^cannot write \S+/training.png: No space left on"):
        plot_run(finished, path)
    assert not list(tmp_path.iterdir())
