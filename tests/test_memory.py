"""The statement of a training run: exact persistent bytes, and a peak near the real one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import TINY, Hearing, random_graph
from nscaching import KnowledgeGraph, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.errors import Stopped
from nscaching.kernels import AutogradLearner
from nscaching.models import MODELS
from nscaching.training import machine, memory
from nscaching.training.graph_sizes import Sizes
from nscaching.training.memory import Statement
from nscaching.training.trainer import Trainer
from nscaching.units import readable

GRAPH = random_graph(entities=20, train=90, valid=30, test=30)
ROOT = Path(__file__).parents[1]
STEP, CHUNK = "transient: a training step", "transient: a chunk of a ranking"

SETTINGS = [
    *({"model": name} for name in MODELS.names()),
    {"sampler": "bernoulli", "optimizer": "row-adam"},
    {"optimizer": "adagrad"},
    {"optimizer": "row-adagrad", "model": "TransD"},
    {"kernels": "reference"},
    {"kernels": "reference", "optimizer": "row-adam"},
    {"kernels": "reference", "optimizer": "row-adagrad"},
    {"model": "TransD", "kernels": "reference", "optimizer": "adagrad"},
    {"filter_known": True, "n1": 7},
    {"sampler": "kbgan", "generator": "DistMult"},
    {"sampler": "kbgan", "generator": "TransD"},
    {"sampler": "kbgan", "generator": "RotatE"},
    {"sampler": "igan", "generator": "TransD"},
    {"sampler": "self-adversarial", "model": "RotatE"},
    {"sampler": "self-adversarial", "model": "TransE"},
    {"sampler": "none", "model": "ComplEx", "optimizer": "adagrad", "penalty_norm": "n3"},
    {"sampler": "none", "model": "DistMult", "objective": "kvsall"},
    {"objective": "softmax", "tail": 5, "reciprocal": True},
    {"objective": "softmax", "model": "ComplEx", "tail": 5, "relation_weight": 0.5},
    {"objective": "softmax", "model": "ComplEx", "tail": 5, "n1": 0},
    {"objective": "softmax", "sampler": "uniform", "model": "TransD", "tail": 99},
]


def config_of(**settings):
    return TrainConfig.from_dict({**TINY, **settings})


def stated(config, graph=GRAPH, out=None, snapshots=0):
    """Return the bytes of each item of a statement; an item that is not stated has none."""
    return Counter(
        {
            item.what.split(": ")[0] if item.what.startswith(("param", "caches")) else item.what:
            item.bytes
            for item in Statement(graph, config, out, snapshots).items
        }
    )  # fmt: skip


def test_snapshots_are_counted_where_they_are_kept(tmp_path):
    caches = stated(config_of())["caches"]

    def counted(count, out, **settings):
        found = stated(config_of(**settings), out=out, snapshots=count)
        return [found["snapshots of the caches"], found["run folder: snapshots"]]

    assert counted(3, None) == [3 * caches, 0]
    assert counted(3, tmp_path) == [caches, 3 * caches]  # the one that is being written
    assert counted(0, tmp_path) == [0, 0]
    assert counted(3, tmp_path, n1=2) == [caches // 2, 3 * caches // 2]


def size(*values):
    """Return the bytes of tensors and arrays, in whatever they are."""
    total = 0
    for value in values:
        if isinstance(value, dict):
            total += size(*value.values())
        elif isinstance(value, list | tuple):
            total += size(*value)
        elif isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, np.ndarray):
            total += value.nbytes
    return total


def learner_sizes(learner, model):
    """Return the bytes of optimizer state, gradients and ready rows of a real learner."""
    if isinstance(learner, AutogradLearner):
        kept = list(learner.optimizer.state.values())
        return size(kept), size([table.grad for table in model.parameters()]), 0
    own = {name: rows for name, rows in learner.vectors.items() if name in learner.unit}
    ready = own, learner.shift, learner.moved, getattr(learner, "where", None)
    return size(learner.means, learner.squares), 0, size(ready)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_persistent_bytes_are_exact(settings):
    config = config_of(**settings)
    found = stated(config)
    trainer = Trainer(GRAPH, config)
    trainer.epoch(1)
    trainer.keep(1)
    learner, sampler = trainer.learner, trainer.sampler
    optimizer, gradients, ready = learner_sizes(learner, trainer.model)
    assert found["parameters"] == size(trainer.model.state_dict())
    assert found["copy of the best parameters"] == size(trainer.best.tensors)
    assert found["training triples"] == size(trainer.triples.columns, trainer.triples.taken)
    assert found["optimizer state"] == optimizer
    assert found["gradients"] == gradients
    assert found["rows kept ready"] == ready + size(getattr(trainer.kernels, "_seen", None))
    cache = getattr(sampler, "cache", None)
    assert found["caches"] == (size(cache.rows) if cache else 0)
    sides = cache.sides.values() if cache else ()
    assert found["queries of the caches' keys"] == size([(s.anchor, s.relation) for s in sides])
    lists = [getattr(sampler, name, ()) for name in ("answers", "first", "size")]
    known = size(sampler.draws._known, sampler.draws._exhausted, getattr(learner, "answers", {}))
    known += size(lists)
    assert found["known triples"] == known
    generator = 0
    if hasattr(sampler, "generator"):
        generator = size(sampler.generator.state_dict())
        generator += sum(learner_sizes(sampler.scorer, sampler.generator))
    assert found["generator"] == generator


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("generator", ["TransE", "TransD", "ComplEx"])
def test_compiled_generators(generator):
    graph = random_graph(entities=20, train=6, valid=30, test=30)
    config = config_of(sampler="kbgan", generator=generator, kernels="triton")
    found, trainer = stated(config, graph), Trainer(graph, config)
    scorer = trainer.sampler.scorer
    assert not isinstance(scorer, AutogradLearner)
    own = {name: rows for name, rows in scorer.vectors.items() if name in scorer.unit}
    real = size(
        trainer.sampler.generator.state_dict(), scorer.means, scorer.squares, scorer.gradients,
        own, scorer.g_shift, scorer.owners, scorer.slots, scorer.shift if scorer.projection else [],
    )  # fmt: skip
    assert found["generator"] == real
    # Autograd would make gradients of whole tables, and rows of each candidate.
    plain = stated(config.changed(kernels="reference"), graph)
    assert found[STEP] < plain[STEP]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("sparse", [0, 10**9])
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "TransE", "optimizer": "row-adagrad"},
        {"model": "TransD", "optimizer": "row-adam", "negatives": 2},
        {"model": "DistMult", "optimizer": "adagrad", "penalty_norm": "n3", "penalty": 0.1},
        {"model": "DistMult", "optimizer": "adagrad", "penalty": 0.1},  # weights decay: all move
        {"model": "ComplEx", "objective": "softmax", "optimizer": "row-adagrad", "tail": 5},
        {
            "model": "ComplEx",
            "objective": "softmax",
            "optimizer": "adagrad",
            "penalty": 0,
            "near": 3,
        },
    ],
    ids=lambda s: "-".join(map(str, s.values())),
)
def test_gradients_on_gpus(settings, sparse, monkeypatch):
    monkeypatch.setattr("nscaching.kernels.compiled.SPARSE", sparse)
    graph = random_graph(entities=20, train=4, valid=30, test=30)
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where Triton interprets
    config = config_of(kernels="triton", device=device, **settings)
    found, trainer = stated(config, graph), Trainer(graph, config)
    trainer.epoch(1)
    learner = trainer.learner
    real = learner.gradients, learner.owners, learner.slots, learner.g_shift
    assert found["gradients"] == size(real)
    assert found["optimizer state"] == size(learner.means, learner.squares)
    decays = settings["optimizer"] == "adagrad" and settings.keys() == {
        "model",
        "optimizer",
        "penalty",
    }
    assert learner.compact == (sparse == 0 and not decays)
    learned, state = Statement(graph, config).learned, learner.checkpoint()
    rest = size(state["rows.powers"]) + 4  # and the shift of no entity
    assert 0 <= learned.state + size(state) - learned.in_checkpoint <= rest


@pytest.mark.parametrize("settings", [{}, {"model": "ComplEx", "optimizer": "row-adagrad"}])
def test_sizes_alone_state_the_same(settings, tmp_path):
    keys = sum(map(len, GRAPH.train_index.values()))
    sizes = Sizes(20, len(GRAPH.relations), 90, keys, held_out=30)
    config = config_of(**settings)
    alone, whole = (stated(config, graph, out=tmp_path) for graph in (sizes, GRAPH))
    for found in (alone, whole):  # names and what is held differ
        del found["program and data, held already"], found["run folder: data"]
    assert alone == whole


def test_sizes_of_millions_take_no_memory():
    before = machine.memory_held()
    sizes = Sizes(86_000_000, 14_824, 304_700_000, 400_000_000, held_out=1000)
    config = config_of(dim=100, optimizer="row-adagrad", n1=10)
    found = stated(config, sizes, out=Path())
    assert found["parameters"] == 4 * 100 * (86_000_000 + 14_824)
    assert found["optimizer state"] == 4 * (86_000_000 + 14_824)
    assert found["run folder: data"] > 12 * 304_700_000 + 8 * 86_000_000
    assert machine.memory_held() - before < 50 << 20


def test_indices_are_bounded():
    graph = random_graph(entities=20, train=90, valid=30, test=30)
    found = stated(config_of(), graph)
    indices = [*graph.train_index.values(), *graph.filter_index.values()]
    real = size([vars(index) for index in indices], graph.train_keys)
    assert real <= found["indices of known answers"] <= 1.3 * real
    trainer = Trainer(graph, config_of())
    trainer.rank("valid", 1)
    trainer.rank("test", 1)
    queries = list(trainer.queries.values())
    assert all(q.sides[Side.HEAD].relation is q.sides[Side.TAIL].relation for q in queries)
    shared = [(q.order, q.sides[Side.HEAD].relation) for q in queries]
    asked = [a for q in queries for a in q.sides.values()]
    own = [(a.anchor, a.answer, a.known.start, a.known.end) for a in asked]
    assert found["ranked triples"] == size(shared, own)


def test_indices_that_were_built_count_once(monkeypatch):
    monkeypatch.setattr(machine, "memory_held", lambda: 10_000_000)
    graph = random_graph(entities=20, train=90, valid=30, test=30)
    assert graph.index_bytes() == 0
    assert graph.train_keys
    assert graph.filter_index
    indices = [*graph.train_index.values(), *graph.filter_index.values()]
    real = size([vars(index) for index in indices], graph.train_keys)
    assert graph.index_bytes() == real > 0
    assert stated(config_of(), graph)["program and data, held already"] == 10_000_000 - real


def test_files_of_a_run(tmp_path):
    config = config_of(epochs=1)
    train(GRAPH, config, out=tmp_path / "run")
    files = {file.name: file.stat().st_size for file in (tmp_path / "run").iterdir()}
    header = 600
    found = stated(config, out=tmp_path)
    assert 0 <= files["model.safetensors"] - found["run folder: model"] < header  # judged once
    many = stated(config_of(epochs=90, validate_every=1), out=tmp_path)
    assert many["run folder: model"] == 4 * found["run folder: model"]
    rare = Statement(GRAPH, config_of(epochs=90, validate_every=1), tmp_path, 0, 1).to_dict()
    sizes = {item["what"]: item["bytes"] for item in rare["items"]}
    assert sizes["run folder: model"] == 2 * found["run folder: model"]
    assert sizes["run folder: checkpoints"] == many["run folder: checkpoints"] // 3
    assert 0 <= files["cache.safetensors"] - found["run folder: cache"] < header
    data = files["triples.safetensors"] + files["vocabulary.json"]
    assert 0 <= data - found["run folder: data"] < header


@pytest.mark.parametrize(
    "settings",
    [
        *({"model": model} for model in ("TransE", "TransH", "TransD", "DistMult", "RotatE")),
        {"sampler": "kbgan"},
        {"model": "TransR", "kernels": "reference", "optimizer": "adagrad"},
        {"model": "ComplEx", "sampler": "none", "optimizer": "adagrad"},
    ],
)
def test_checkpoints_of_a_run(tmp_path, settings):
    config = config_of(**settings)
    with pytest.raises(Stopped):
        train(GRAPH, config, out=tmp_path / "run", listener=Hearing(stop=lambda: True))
    (file,) = (tmp_path / "run" / "checkpoints").iterdir()
    found = stated(config, out=tmp_path)
    checkpoint = found["run folder: checkpoints"] // memory.CHECKPOINTS
    assert 0 <= checkpoint - file.stat().st_size < 10_000
    assert not found["copy of the best parameters"]


def test_two_checkpoints_where_the_disk_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "disk_available", lambda path: 10**9)
    some = stated(config_of(dim=3000), out=tmp_path)["run folder: checkpoints"]
    monkeypatch.setattr(machine, "disk_available", lambda path: 10**5)
    assert stated(config_of(dim=3000), out=tmp_path)["run folder: checkpoints"] == some * 2 // 3


def test_a_statement_allocates_nothing_large():
    before = machine.memory_held()
    config = config_of(dim=10**7, model="TransR", sampler="igan")  # petabytes
    assert Statement(GRAPH, config).peak("memory") > 1 << 50
    assert machine.memory_held() - before < 100 << 20


@pytest.mark.parametrize("model", ["TransE", "TransH", "TransR", "RESCAL", "ManifoldE"])
def test_transient_bytes_grow_with_their_cause(model):
    small, large = (stated(config_of(model=model, batch_size=batch)) for batch in (4, 64))
    assert small[STEP] < large[STEP]
    assert small[CHUNK] == large[CHUNK] > 0


# The peak, against what a process really takes.


@pytest.mark.parametrize("words", ["--model TransE", "--model ComplEx --sampler none"])
def test_a_process_takes_about_what_was_stated(words):
    sizes = "--entities 60000 --triples 150000 --relations 20 --steps 2 --dim 64 --batch-size 64"
    command = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "--json", "--threads", "1"]
    done = subprocess.run(
        [*command, *sizes.split(), *words.split()], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    assert 0.9 * found["taken"] < found["stated"] < 2 * found["taken"]


# What is available.


def test_what_is_available():
    assert 0 < machine.memory_held() <= machine.memory_held("VmHWM")
    assert machine.memory_available() > 0
    assert machine.disk_available(ROOT / "no" / "such" / "folder") > 0


@pytest.mark.parametrize(
    ("line", "files", "free"),
    [
        ("0::/", {"memory.max": "5000", "memory.current": "1000"}, 4000),
        ("0::/a/b", {"a/memory.max": "5000", "a/memory.current": "1000"}, 4000),
        ("0::/a", {"a/memory.max": "max", "a/memory.current": "1000"}, 8 << 20),
        (
            "0::/",
            {"memory.max": "5000", "memory.current": "4000", "memory.stat": "inactive_file 500"},
            1500,
        ),
        (
            "4:cpu,memory:/x",
            {"memory/memory.limit_in_bytes": "300", "memory/memory.usage_in_bytes": "400"},
            0,
        ),
        ("0::/", {}, 8 << 20),
    ],
)
def test_limits_of_groups_count(tmp_path, line, files, free):
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(f"9:devices:/\n{line}\n")
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable: 8192 kB\n")
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert machine.memory_available(tmp_path / "proc", tmp_path / "groups") == free


# Refusals.


@pytest.fixture
def small(monkeypatch):
    """Return a function that leaves a machine with so many bytes beyond what is held."""

    def leave(left=1 << 40, disk=1 << 40):
        monkeypatch.setattr(machine, "memory_held", lambda: 0)
        monkeypatch.setattr(machine, "memory_available", lambda: left)
        monkeypatch.setattr(machine, "disk_available", lambda path: disk)
        monkeypatch.setattr(memory, "LIBRARIES", 0)

    return leave


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 4000},
        {"dim": 2000, "n1": 20, "sampler": "bernoulli", "model": "DistMult"},
        {"dim": 400, "batch_size": 90, "sampler": "self-adversarial"},
        {"sampler": "none", "model": "ComplEx", "dim": 700},
        {"sampler": "kbgan", "n1": 20, "dim": 300},
        {"model": "TransR", "dim": 200, "kernels": "reference"},
        {"model": "DistMult", "dim": 2000, "objective": "softmax", "n1": 20},
        {"model": "DistMult", "dim": 2000, "objective": "softmax", "n1": 0},
    ],
)
def test_the_flags_that_are_named_do_fit(settings, small):
    small()
    config = config_of(**settings)
    needs = Statement(GRAPH, config).peak("memory")
    small(needs - 1)
    with pytest.raises(UserError) as error:
        train(GRAPH, config)
    said, _, advised = str(error.value).rpartition("; ")
    assert said.startswith(f"this training needs {readable(needs)} of memory (")
    assert said.endswith(f") and {readable(needs - 1)} are available")
    assert advised.endswith(" would fit")
    remedies = advised.removesuffix(" would fit").split(" or ")
    assert any(each.startswith("dim ") for each in remedies)
    for remedy in remedies:
        name, value = remedy.split()
        lower = int(value) if value.isdigit() else value
        train(GRAPH, config, **{name: lower, "epochs": 1})


def test_a_smaller_tail_may_fit(small):
    small()
    graph = random_graph(entities=3000, train=3000)
    settings = {"objective": "softmax", "model": "DistMult", "batch_size": 2000, "tail": 10_000}
    config = config_of(**settings)
    small(Statement(graph, config).peak("memory") - (1 << 20))
    with pytest.raises(UserError, match=r"tail 2\d\d\d or "):
        train(graph, config)


def test_several_flags_where_none_alone_will_do(small):
    small(0)
    with pytest.raises(UserError, match="no setting makes so large a graph fit"):
        train(GRAPH, **TINY)
    config = config_of(dim=2, n1=1, batch_size=1, kernels="auto")
    small(Statement(GRAPH, config).peak("memory"))
    with pytest.raises(UserError, match="batch_size 1 n1 1 dim 2 together would fit"):
        train(GRAPH, **{**TINY, "dim": 600, "n1": 20})


def test_the_disk_is_looked_at_too(small, tmp_path):
    small(disk=500_000)
    with pytest.raises(UserError, match=r"KiB on the disk of .*run \(run folder: checkpoints") as e:
        train(GRAPH, out=tmp_path / "run", **{**TINY, "dim": 600})
    assert "dim " in str(e.value)
    assert not (tmp_path / "run").exists()


def test_a_dry_run(ask, capsys, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    words = ["train", "world", "--dry-run", "--device", "cpu"]
    found = ask(*words)
    assert found["fits"]
    assert set(found["places"]["memory"]) == {"needs", "available"}
    caches = [item["bytes"] for item in found["items"] if item["what"].startswith("caches")]
    graph = KnowledgeGraph.load("world")
    keys = sum(len(graph.train_index[side]) for side in Side)
    assert caches == [keys * 64 * 4]
    main(words)
    out = capsys.readouterr().out
    assert f"parameters: {(5144 + 2 * 9) * 2 * 200:,} numbers" in out
    assert f"caches: {keys:,} keys × 64" in out
    small(1 << 20)
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert "peak" in out
    assert "available" in out
    assert err.splitlines()[-1].startswith("nscaching: this training needs ")
    assert list(tmp_path.iterdir()) == []
