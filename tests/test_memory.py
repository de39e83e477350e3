"""The statement of what a training needs: exact for what lasts, and near for the whole."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import TINY, random_graph
from nscaching import TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.errors import Stopped
from nscaching.kernels import AutogradLearner
from nscaching.models import MODELS
from nscaching.training.memory import Plan, lasting, machine, passing, readable, state
from nscaching.training.memory.fitting import remedies
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=20, train=90, valid=30, test=30)
ROOT = Path(__file__).parents[1]

SETTINGS = [
    *({"model": name} for name in MODELS.names()),
    {"sampler": "bernoulli", "optimizer": "row-adam"},
    {"optimizer": "adagrad"},
    {"kernels": "reference"},
    {"kernels": "reference", "optimizer": "row-adam"},
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
]


def made(**settings):
    return Plan(GRAPH, TrainConfig.from_dict({**TINY, **settings}))


def test_snapshots_are_counted_where_they_are_kept(tmp_path):
    caches = lasting.caches(made())

    def stated(count, out):
        plan = dataclasses.replace(made(), snapshots=count)
        items = {item.what: item.bytes for item in state(plan, out).items}
        return [items.get(name, 0) for name in ("snapshots of the caches", "run folder: snapshots")]

    assert stated(3, None) == [3 * caches, 0]
    assert stated(3, tmp_path) == [caches, 3 * caches]  # the one that is being written
    assert stated(0, tmp_path) == [0, 0]
    assert dataclasses.replace(made(), snapshots=3).changed(n1=2).snapshots == 3


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


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_what_lasts_is_exact(settings):
    plan = made(**settings)
    trainer = Trainer(GRAPH, plan.config)
    trainer.epoch(1)
    trainer.keep(1)
    learner, sampler = trainer.learner, trainer.sampler
    assert lasting.model_state(plan.model) == size(trainer.model.state_dict())
    assert lasting.best_copy(plan) == size(trainer.best)
    assert lasting.training_triples(plan) == size(trainer.triples.columns, trainer.triples._order)
    assert plan.compiled == (not isinstance(learner, AutogradLearner))
    if plan.compiled:
        assert lasting.optimizer_state(plan) == size(learner.means, learner.squares)
        own = {name: rows for name, rows in learner.ready.items() if name in learner.unit}
        ready = size(own, learner.shift, learner.moved)
        assert lasting.gradients(plan) == 0
    else:
        # RowAdam keeps its tables beside their means.
        kept = (
            [state[1:] for state in learner.optimizer.state]
            if hasattr(learner.optimizer, "steps")
            else list(learner.optimizer.state.values())
        )
        assert lasting.optimizer_state(plan) == size(kept)
        assert lasting.gradients(plan) == size([p.grad for p in trainer.model.parameters()])
        ready = 0
    assert lasting.ready_rows(plan) == ready + size(getattr(trainer.kernels, "_seen", None))
    caches = getattr(sampler, "cache", {})
    assert lasting.caches(plan) == size(caches)
    sides = getattr(sampler, "sides", {}).values()
    assert lasting.queries_of_keys(plan) == size([(s.anchor, s.relation) for s in sides])
    known = size(sampler._known, sampler._exhausted, getattr(learner, "answers", {}))
    assert lasting.known_triples(plan) == known
    if plan.generator is not None:
        scorer, made_of = sampler.scorer, size(sampler.generator.state_dict())
        assert plan.compiled_generator == (not isinstance(scorer, AutogradLearner))
        if plan.compiled_generator:
            own = {name: rows for name, rows in scorer.ready.items() if name in scorer.unit}
            made_of += size(scorer.means, scorer.squares, own, scorer.shift, scorer.moved)
        else:
            made_of += size([table.grad for table in sampler.generator.parameters()])
            made_of += size(list(scorer.optimizer.state.values()))
        assert lasting.generator(plan) == made_of


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("generator", ["TransE", "TransD", "ComplEx"])
def test_compiled_generators(generator):
    graph = random_graph(entities=20, train=6, valid=30, test=30)
    config = TrainConfig.from_dict(
        {**TINY, "sampler": "kbgan", "generator": generator, "kernels": "triton"}
    )
    plan, trainer = Plan(graph, config), Trainer(graph, config)
    scorer = trainer.sampler.scorer
    assert plan.compiled_generator
    assert not isinstance(scorer, AutogradLearner)
    own = {name: rows for name, rows in scorer.ready.items() if name in scorer.unit}
    real = size(
        trainer.sampler.generator.state_dict(), scorer.means, scorer.squares, scorer.gradients,
        own, scorer.g_shift, scorer.touched, scorer.shift if scorer.projection else [],
    )  # fmt: skip
    assert lasting.generator(plan) == real
    # By autograd there would be gradients of whole tables, and rows of each candidate.
    plain = Plan(graph, dataclasses.replace(config, kernels="reference"))
    assert passing.training_step(plan) < passing.training_step(plain)


def test_indices_are_bounded():
    graph = random_graph(entities=20, train=90, valid=30, test=30)
    plan = Plan(graph, TrainConfig.from_dict(TINY))
    indices = [*graph.train_index.values(), *graph.filter_index.values()]
    real = size([vars(index) for index in indices], graph.train_keys)
    assert real <= lasting.graph_indices(plan) <= 1.3 * real
    trainer = Trainer(graph, plan.config)
    trainer.rank("valid", 1)
    trainer.rank("test", 1)
    asked = [(q.order, q.relation, q.anchor, q.answer) for q in trainer.queries.values()]
    runs = [(k.start, k.end) for q in trainer.queries.values() for k in q._known.values()]
    assert lasting.ranked_queries(plan) == size(asked, runs)


def test_indices_that_are_there_count_once(monkeypatch):
    monkeypatch.setattr(machine, "memory_held", lambda: 10_000_000)
    graph = random_graph(entities=20, train=90, valid=30, test=30)
    assert lasting.indices_there(graph) == 0
    assert graph.train_keys
    assert graph.filter_index
    indices = [*graph.train_index.values(), *graph.filter_index.values()]
    real = size([vars(index) for index in indices], graph.train_keys)
    assert lasting.indices_there(graph) == real > 0
    held = state(Plan(graph, TrainConfig.from_dict(TINY))).items[0]
    assert (held.what, held.bytes) == ("held already: program and data", 10_000_000 - real)


def test_files_of_a_run(tmp_path):
    plan = made(epochs=1)
    train(GRAPH, plan.config, out=tmp_path / "run")
    files = {file.name: file.stat().st_size for file in (tmp_path / "run").iterdir()}
    header = 600
    stated = lasting.run_folder(plan)
    assert 0 <= files["model.safetensors"] - stated["model"] // 2 < header
    assert 0 <= files["cache.safetensors"] - stated["cache"] < header
    data = files["triples.safetensors"] + files["vocabulary.json"]
    assert 0 <= data - stated["data"] < header


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
    plan = made(**settings)
    with pytest.raises(Stopped):
        train(GRAPH, plan.config, out=tmp_path / "run", stop=lambda: True)
    (file,) = (tmp_path / "run" / "checkpoints").iterdir()
    stated = lasting.run_folder(plan)["checkpoints"] // lasting.CHECKPOINTS
    best = lasting.best_copy(plan)  # which there is not, before a validation
    assert 0 <= stated - best - file.stat().st_size < 10_000


def test_nothing_large_is_made_for_a_statement(monkeypatch):
    before = machine.memory_held()
    plan = made(dim=10**7, model="TransR", sampler="igan")  # petabytes
    assert state(plan).total("memory") > 1 << 50
    assert machine.memory_held() - before < 100 << 20


@pytest.mark.parametrize("model", ["TransE", "TransH", "TransR", "RESCAL", "ManifoldE"])
def test_moments_grow_with_what_makes_them(model):
    small, large = made(model=model, batch_size=4), made(model=model, batch_size=64)
    assert passing.training_step(small) < passing.training_step(large)
    assert passing.ranking_chunk(small) == passing.ranking_chunk(large) > 0


# The whole, against what a process really takes.


@pytest.mark.parametrize("words", ["--model TransE", "--model ComplEx --sampler none"])
def test_a_process_takes_about_what_was_stated(words):
    sizes = "--entities 60000 --triples 150000 --relations 20 --steps 2 --dim 64 --batch-size 64"
    command = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "--json", "--threads", "1"]
    done = subprocess.run(
        [*command, *sizes.split(), *words.split()], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    assert 0.9 * found["taken"] < found["stated"] < 2 * found["taken"]


# What is there.


def test_what_is_there():
    assert 0 < machine.memory_held() <= machine.peak_memory()
    assert machine.memory_free() > 0
    assert machine.disk_free(ROOT / "no" / "such" / "folder") > 0


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
    assert machine.memory_free(tmp_path / "proc", tmp_path / "groups") == free


# Refusals.


@pytest.fixture
def small(monkeypatch):
    """Return a function that leaves a machine with so many bytes beyond what is held."""

    def leave(memory=1 << 40, disk=1 << 40):
        monkeypatch.setattr(machine, "memory_held", lambda: 0)
        monkeypatch.setattr(machine, "memory_free", lambda: memory)
        monkeypatch.setattr(machine, "disk_free", lambda path: disk)
        monkeypatch.setattr("nscaching.training.memory.statement.LATER", 0)

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
    ],
)
def test_the_flags_that_are_named_do_fit(settings, small):
    small()
    plan = made(**settings)
    needs = state(plan).total("memory")
    small(memory=needs - 1)
    with pytest.raises(UserError) as error:
        train(GRAPH, plan.config)
    said = str(error.value)
    assert said.startswith(f"this training needs {readable(needs)} of memory (")
    assert f"and there are {readable(needs - 1)}; " in said
    found = list(remedies(plan, "memory", needs - 1))
    assert found
    assert said.endswith(f"{' or '.join(found)} would fit")
    for remedy in found:
        name, value = remedy.split()
        lower = int(value) if value.isdigit() else value
        train(GRAPH, plan.config, **{name: lower, "epochs": 1})


def test_several_flags_where_none_alone_will_do(small):
    small(memory=0)
    with pytest.raises(UserError, match="no setting makes so large a graph fit"):
        train(GRAPH, **TINY)
    little = state(made(dim=2, n1=1, batch_size=1, kernels="auto")).total("memory")
    small(memory=little)
    with pytest.raises(UserError, match="batch_size 1 n1 1 dim 2 together would fit"):
        train(GRAPH, **{**TINY, "dim": 600, "n1": 20})


def test_the_disk_is_looked_at_too(small, tmp_path):
    small(disk=500_000)
    with pytest.raises(UserError, match=r"KiB on the disk of .*run \(run folder: checkpoints") as e:
        train(GRAPH, out=tmp_path / "run", **{**TINY, "dim": 300})
    assert "dim " in str(e.value)
    assert not (tmp_path / "run").exists()


def test_a_dry_run(capsys, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    words = ["train", "world", "--dry-run", "--device", "cpu"]
    main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["fits"]
    caches = [item["bytes"] for item in found["items"] if item["what"].startswith("caches")]
    graph = Plan(train_graph := __import__("nscaching").KnowledgeGraph.load("world"), TrainConfig())
    keys = sum(len(train_graph.train_index[side]) for side in Side)
    assert caches == [keys * 50 * 4] == [lasting.caches(graph)]
    main(words)
    out = capsys.readouterr().out
    assert "parameters: 515,300 numbers" in out
    assert f"caches: {keys:,} keys × 50" in out
    small(memory=1 << 20)
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert "all of it at most" in out
    assert err.splitlines()[-1].startswith("nscaching: this training needs ")
    assert list(tmp_path.iterdir()) == []
