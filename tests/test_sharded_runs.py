"""Runs of several processes: folders, checkpoints, kills, and what goes wrong in one line."""

import hashlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from torch.distributed import HashStore

import ranks
from nscaching import Listener, Run, UserError, train
from nscaching.errors import Stopped
from nscaching.kernels.shards import Shards
from nscaching.runs.folder import RunFolder
from nscaching.runs.shard_checkpoints import STATE, ShardCheckpoints
from nscaching.sharded import launch
from nscaching.sharded.launch import alone
from nscaching.sharded.world import World
from nscaching.training import shard_trainer, sharded
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


@pytest.fixture(scope="module", params=["reference", "numba"])
def settings(request):
    settings = SETTINGS | {"kernels": request.param}
    if request.param == "numba":
        with alone() as world:  # compiles
            ranks.steps(world, settings)
    return settings


@pytest.fixture(scope="module")
def whole(base, settings):
    """Train to the end without an interruption."""
    out = base / f"whole-{settings['kernels']}"
    ranks.on_ranks(2, out.with_suffix(".ranks"), ranks.train, out, settings)
    return out


@pytest.fixture(scope="module")
def stopped(base, settings):
    """Stop in the third epoch: after the start's ranking, 5 steps an epoch and rankings of it."""
    out = base / f"stopped-{settings['kernels']}"
    told = ranks.on_ranks(2, out.with_suffix(".ranks"), train_until, out, settings, 17)
    assert told[0] == told[1]
    assert told[0].endswith(f"to resume: nscaching train --resume {out}")
    return out


def test_a_run_of_several_processes_looks_as_any_other(whole, settings, tmp_path):
    run = Run.load(whole)
    assert run.record["processes"] == 2
    one = ranks.steps_of_one(settings, 0)
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
def test_any_number_of_processes_resumes(whole, stopped, settings, size, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    if size == 1:
        with alone() as world:
            ranks.train(world, out, settings)
    else:
        ranks.on_ranks(size, tmp_path / "ranks", ranks.train, out, settings)
    if size == 2:
        assert_same(out, whole)
        return
    torch.testing.assert_close(
        Run.load(out).model.entity, Run.load(whole).model.entity, rtol=1e-3, atol=1e-4
    )
    assert [r["epoch"] for r in lines(out)] == [r["epoch"] for r in lines(whole)]


def test_other_kernels_resume(whole, stopped, settings, tmp_path):
    out, kernels = tmp_path / "run", "numba" if settings["kernels"] == "reference" else "reference"
    shutil.copytree(stopped, out)
    ranks.on_ranks(3, tmp_path / "ranks", ranks.resume_by, out, kernels)
    torch.testing.assert_close(
        Run.load(out).model.entity, Run.load(whole).model.entity, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("settings", ["numba"], indirect=True)
def test_twenty_kills_change_nothing(base, whole, settings, tmp_path):
    """Kill a rank at random moments; end the others as torchrun does, and start all again."""
    out, chance, kills = tmp_path / "killed", random.Random(5), 0
    for attempt in range(100):
        processes = ranks.start(2, tmp_path / f"kill-{attempt}", ranks.train, out, settings, 0.01)
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
            each.join(120)
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
    about["sums"][".metadata"] = hashlib.sha256((newest / ".metadata").read_bytes()).hexdigest()
    (newest / STATE).write_text(json.dumps(about))
    with alone() as world, pytest.raises(UserError, match="none of its checkpoints"):
        damage(world, out)
    assert not (tmp_path / "evil").exists()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def started(folder, *words, port=None, work=ranks.command, **environment):
    """Run the command line once for each of some lists of words, as torchrun would start them."""
    folder.mkdir(exist_ok=True)
    given = len(words), port or free_port()
    processes = [
        ranks.FORKS.Process(target=work, args=(rank, *given, each, folder), kwargs=environment)
        for rank, each in enumerate(words)
    ]
    for each in processes:
        each.start()
    return processes


def ended(folder, processes, seconds=120):
    """Return the exit codes, and what each process printed."""
    for each in processes:
        each.join(seconds)
        assert each.exitcode is not None, "a process hangs"
    codes = [each.exitcode for each in processes]
    return codes, [(folder / f"{rank}.log").read_text() for rank in range(len(processes))]


@pytest.fixture(scope="module")
def triples(base):
    """Write the training triples as a table."""
    file = base / "graph.tsv"
    names = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in ranks.GRAPH.train.tolist()]
    file.write_text("".join("\t".join(row) + "\n" for row in names))
    return file


def command(triples, out, *flags):
    flags = ("--model", "TransE", "--sampler", "nscaching", "--dim", "4", *flags)
    return ["train", str(triples), *flags, "--device", "cpu", "--n1", "4", "--out", str(out)]


WRONG = [
    ((), ("--lr", "0.5"), {}, "process 1 has another --lr: 0.5, here "),
    ((), ("--split-seed", "3"), {}, "process 1 has another data: "),
    (("--sampler", "kbgan"),) * 2 + ({}, "--sampler kbgan trains in one process only"),
    (("--filter-known",),) * 2 + ({}, "--filter-known with a cache trains in one process"),
    (("--dry-run",),) * 2 + ({}, "--dry-run is for one process: leave out torchrun"),
    (("--snapshots", "1"),) * 2 + ({}, "--snapshots is for one process"),
    (("--dimm", "3"),) * 2 + ({}, "did you mean --dim?"),
    ((), (), {"NSCACHING_PATIENCE": "soon"}, "NSCACHING_PATIENCE must be at least 1 second"),
    ((), (), {"WORLD_SIZE": "two"}, "variable WORLD_SIZE is no number: 'two'"),
]


def test_what_does_not_go_together(triples, tmp_path):
    begun = []
    for number, (*flags, environment, _) in enumerate(WRONG):
        folder = tmp_path / str(number)
        words = [command(triples, folder / "run", *given) for given in flags]
        begun.append((folder, started(folder, *words, **environment)))
    for (folder, processes), (*_, message) in zip(begun, WRONG, strict=True):
        codes, printed = ended(folder, processes)
        assert codes == [2, 2], message
        *_, last = printed[0].splitlines()
        assert last.startswith("nscaching: ")
        assert message in last
        assert printed[1] == ""  # one process speaks
        assert not (folder / "run").exists()


def command_short_of_memory(rank, *given, **environment):
    """Run the command where the second process has no memory for its shard."""

    def fails(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    if rank == 1:
        shard_trainer.new_model = fails
    ranks.command(rank, *given, **environment)


def test_one_process_that_is_short_of_memory(triples, tmp_path):
    words = command(triples, tmp_path / "run")
    processes = started(tmp_path, words, words, work=command_short_of_memory)
    codes, printed = ended(tmp_path, processes)
    assert codes == [2, 2]
    assert printed[0].splitlines()[-1] == "nscaching: process 1: not enough memory"
    assert printed[1] == ""


def test_too_many_processes_and_nowhere_to_restart(tmp_path):
    (tmp_path / "tiny.tsv").write_text("a\tr\tb\nb\tr\ta\n")
    words = command(tmp_path / "tiny.tsv", tmp_path / "run")
    codes, printed = ended(tmp_path, started(tmp_path, words, words, words))
    assert codes == [2, 2, 2]
    assert "3 processes are too many for 2 entities: at most one for each" in printed[0]
    again = {"TORCHELASTIC_MAX_RESTARTS": "3"}
    codes, printed = ended(tmp_path, started(tmp_path, *[words[:-2]] * 2, **again))
    assert "--max-restarts of torchrun needs --out" in printed[0]
    assert codes == [2, 2]


def test_a_port_in_use(triples, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words, port = command(triples, tmp_path / "run"), listening.getsockname()[1]
        processes = started(tmp_path, words, words, port=port, NSCACHING_PATIENCE="1")
        codes, printed = ended(tmp_path, processes)
    assert codes == [2, 2]
    assert f"the 2 processes do not meet at 127.0.0.1 port {port}" in printed[0]
    assert "address already in use" in printed[0]


def test_a_process_that_stalls_is_given_up(triples, tmp_path):
    plain = "--kernels", "reference"  # which compiles nothing while the other process waits
    words = command(triples, tmp_path / "run", "--epochs", "100000", *plain)
    processes = started(tmp_path, words, words, NSCACHING_PATIENCE="2")
    deadline = time.monotonic() + 90
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(processes[1].pid, signal.SIGSTOP)
    began = time.monotonic()
    processes[0].join(60)
    assert time.monotonic() - began < 25
    processes[1].kill()
    codes, printed = ended(tmp_path, processes)
    assert codes[0] == 2
    assert "nscaching: no answer for 2 s: process 1 was last seen at " in printed[0]


def test_a_process_that_never_comes(triples, tmp_path):
    words = command(triples, tmp_path / "run", "--epochs", "2")
    processes = started(tmp_path, words, NSCACHING_PATIENCE="1", WORLD_SIZE="2")
    codes, printed = ended(tmp_path, processes)
    assert codes == [2]
    assert printed[0].startswith("nscaching: the 2 processes do not meet at 127.0.0.1 port ")


def test_torchrun_restarts_what_was_killed(triples, tmp_path):
    words = command(triples, tmp_path / "run", "--epochs", "60", "--checkpoint-every", "0.2")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    whole = [*torchrun, "--max-restarts", "3", "-m", "nscaching", *words]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(whole, stdout=log, stderr=log) as p:
        deadline = time.monotonic() + 150
        while not list(tmp_path.glob("run/checkpoints/*.shards")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        kids = subprocess.run(["ps", "-o", "pid=", "--ppid", str(p.pid)], capture_output=True)
        os.kill(int(kids.stdout.split()[-1]), signal.SIGKILL)
        assert p.wait(150) == 0
    printed = (tmp_path / "log").read_text()
    assert "2 processes resume at epoch" in printed
    epochs = [r["epoch"] for r in lines(tmp_path / "run") if "split" not in r]
    assert epochs == [*range(1, len(epochs) + 1)]
    assert Run.load(tmp_path / "run").result("test") is not None


def train_short_of_room(world, out, settings):
    """Train where the second rank can write small files only; return what was noted."""
    if world.rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    said = []
    listener = Listener()
    listener.note = said.append
    given = world, ranks.GRAPH, ranks.config(**settings), out
    sharded.train_in_shards(*given, listener=listener, checkpoint_every=0.01)
    if world.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return said


@pytest.mark.parametrize("settings", ["numba"], indirect=True)
def test_a_full_disk_of_one_process_costs_no_training(whole, settings, tmp_path):
    said, _ = ranks.on_ranks(2, tmp_path / "ranks", train_short_of_room, tmp_path / "run", settings)
    assert said
    assert all(text.startswith("no checkpoint could be written: cannot write ") for text in said)
    assert "File too large" in said[0]
    assert_same(tmp_path / "run", whole)


def test_a_run_of_one_process_is_resumed_by_one(tmp_path):
    out = tmp_path / "run"
    listener = StopAt(9)
    with pytest.raises(Stopped):
        train(ranks.GRAPH, ranks.config(**SETTINGS), out=out, listener=listener)
    words = ["train", "--resume", str(out)]
    codes, printed = ended(tmp_path, started(tmp_path, words, words))
    assert codes == [2, 2]
    assert printed[0].splitlines()[-1] == (
        f"nscaching: {out} was begun by one process: resume it without torchrun"
    )


def test_a_restart_takes_no_run_of_others(triples, stopped, tmp_path):
    """Leave an existing folder as it is, also where torchrun may restart and has restarted."""
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    words = command(triples, out)
    again = {"TORCHELASTIC_MAX_RESTARTS": "1", "TORCHELASTIC_RESTART_COUNT": "1"}
    codes, printed = ended(tmp_path, started(tmp_path, words, words, **again))
    assert codes == [2, 2]
    assert f"{out} exists already" in printed[0]
    assert f"or --resume {out}" in printed[0]
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_run_with_checkpoints_is_not_finished(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "run")
    (tmp_path / "run" / "training.png").touch()  # killed between its plot and its card
    assert not RunFolder(tmp_path / "run").finished


@pytest.mark.parametrize("name", ["/dev/zero", "../config.toml", "__0_0.distcp/../state.json"])
def test_a_strangers_checkpoint_names_its_own_files_alone(stopped, tmp_path, name):
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    file = next((out / "checkpoints").iterdir()) / STATE
    about = json.loads(file.read_text())
    about["sums"][name] = "0" * 64
    file.write_text(json.dumps(about))
    said = []
    with alone() as world, pytest.raises(UserError, match="none of its checkpoints"):
        ShardCheckpoints(out, world, Shards(37, 1, 0)).newest(said.append)
    assert f"names {name}, which is no file of a checkpoint" in said[0]


def test_the_silent_one_of_many_is_named():
    """Name the process that said nothing, not those that miss it too."""
    store = HashStore()
    for rank, word in ((1, "lost"), (3, "lost")):
        store.set(f"{word} {rank}", "")
    store.set("place 2", "training 5 of 9, epoch 1")
    world = World(0, 4, store)
    said = launch._why(world, RuntimeError("timed out"))
    assert said == "no answer for 300 s: process 2 was last seen at training 5 of 9, epoch 1"
    store.set("failed 3", "cannot write x: disk full")
    assert launch._why(world, RuntimeError("closed")) == "process 3: cannot write x: disk full"
