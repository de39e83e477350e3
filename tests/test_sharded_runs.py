"""Runs of several processes: folders, checkpoints, kills, and what goes wrong in one line."""

import json
import os
import pickle
import random
import shutil
import signal
import time

import pytest
import torch

import ranks
from nscaching import Listener, Run, UserError
from nscaching.errors import Stopped
from nscaching.runs.shard_checkpoints import STATE, ShardCheckpoints
from nscaching.sharded.launch import alone
from nscaching.sharded.shards import Shards
from nscaching.training import sharded
from resuming import assert_same, lines

SETTINGS = {"model": "TransE", "epochs": 4}


class StopAt(Listener):
    """Asks to stop after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def progress(self, stage, done, total):
        self.steps -= 1

    def stop(self):
        return self.steps <= 0


def train_until(world, out, settings, steps):
    """Train until one rank asks to stop; all stop together."""
    listener = StopAt(steps) if world.rank == world.size - 1 else Listener()
    try:
        sharded.train_in_shards(
            world, ranks.GRAPH, ranks.config(**settings), out, listener=listener, checkpoint_every=0
        )
    except Stopped as stop:
        return str(stop)
    raise AssertionError


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def whole(base):
    """Train to the end without an interruption."""
    ranks.on_ranks(2, base / "whole-ranks", ranks.train, base / "whole", SETTINGS)
    return base / "whole"


@pytest.fixture(scope="module")
def stopped(base):
    """Stop in the third epoch: after the start's ranking, 5 steps an epoch and rankings of it."""
    told = ranks.on_ranks(2, base / "stopped-ranks", train_until, base / "stopped", SETTINGS, 17)
    assert told[0] == told[1]
    assert told[0].endswith(f"to resume: nscaching train --resume {base / 'stopped'}")
    return base / "stopped"


def test_a_run_of_several_processes_looks_as_any_other(whole, tmp_path):
    run = Run.load(whole)
    assert run.record["processes"] == 2
    one = ranks.steps_of_one(SETTINGS, 0)
    assert len(run.history) == 4 + 4 + 1
    *_, record = one.train()
    torch.testing.assert_close(run.model.entity, one.model.entity, rtol=1e-4, atol=1e-5)
    assert run.result("test")["mrr"] == pytest.approx(record["mrr"], rel=1e-3)
    assert run.evaluate()["mrr"] == pytest.approx(run.result("test")["mrr"], rel=1e-6)
    assert len(run.predict("e1", "r0")) > 0
    # Every key's cache, as one process leaves it.
    for side, rows in one.sampler.cache.rows.items():
        assert torch.equal(run.sampler_state[f"{side.value}_cache"], rows)
    assert not (whole / "checkpoints").exists()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_any_number_of_processes_resumes(whole, stopped, size, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    if size == 1:
        with alone() as world:
            ranks.train(world, out, SETTINGS)
    else:
        ranks.on_ranks(size, tmp_path / "ranks", ranks.train, out, SETTINGS)
    if size == 2:
        assert_same(out, whole)
        return
    torch.testing.assert_close(
        Run.load(out).model.entity, Run.load(whole).model.entity, rtol=1e-3, atol=1e-4
    )
    assert [r["epoch"] for r in lines(out)] == [r["epoch"] for r in lines(whole)]


def test_twenty_kills_change_nothing(base, whole):
    """Kill a rank at random moments; end the others as torchrun does, and start all again."""
    out, chance, kills = base / "killed", random.Random(5), 0
    for attempt in range(100):
        processes = ranks.start(2, base / f"kill-{attempt}", ranks.train, out, SETTINGS, 0.01)
        if kills < 20:
            time.sleep(chance.uniform(0.02, 0.5))
            victim = chance.choice(processes)
            if victim.is_alive():
                os.kill(victim.pid, signal.SIGKILL)
                kills += 1
                for each in processes:
                    each.join(0.5)  # that meets a lost connection, but not while it waits to meet
                    each.kill()
        for each in processes:
            each.join(30)
        if kills == 20 and all(each.exitcode == 0 for each in processes):
            break
        if (out / "README.md").exists() and not (out / "checkpoints").exists():
            assert_same(out, whole)  # ended before the kill: once more
            shutil.rmtree(out)
    assert kills == 20
    assert_same(out, whole)


def damage(world, out):
    checkpoints = ShardCheckpoints(out, world, Shards(37, world.size, world.rank))
    said = []
    state = checkpoints.newest(said.append)
    return state["trained"], said


def test_a_damaged_checkpoint_is_not_taken(base, tmp_path):
    out = tmp_path / "run"
    ranks.on_ranks(2, tmp_path / "a", train_until, out, SETTINGS, 12)
    first = next((out / "checkpoints").iterdir())
    shutil.copytree(first, first.with_name("000002.shards"))
    for name in ("__1_0.distcp", ".metadata", STATE):
        with alone() as world:
            assert damage(world, out)[1] == []
        file = first.with_name("000002.shards") / name
        before = file.read_bytes()
        file.write_bytes(before[:-9] + b"\x00" * 9)
        with alone() as world:
            _, said = damage(world, out)
        assert len(said) == 1
        assert "000002.shards is damaged" in said[0]
        file.write_bytes(before)
    (first / STATE).unlink()
    (first.with_name("000002.shards") / STATE).unlink()
    with alone() as world, pytest.raises(UserError, match="none of its checkpoints is whole"):
        damage(world, out)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_strangers_checkpoint_calls_nothing(stopped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    newest = next((out / "checkpoints").iterdir())
    (newest / ".metadata").write_bytes(pickle.dumps(Evil()))
    about = json.loads((newest / STATE).read_text())
    import hashlib

    about["sums"][".metadata"] = hashlib.sha256((newest / ".metadata").read_bytes()).hexdigest()
    (newest / STATE).write_text(json.dumps(about))
    with alone() as world, pytest.raises(UserError, match="none of its checkpoints"):
        damage(world, out)
    assert not (tmp_path / "evil").exists()
