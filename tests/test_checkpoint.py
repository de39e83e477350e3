"""Checkpoints on a bad day: damaged, full disks, other versions, two processes, SIGKILL."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from helpers import Hearing
from nscaching import UserError, resume, train
from nscaching.errors import Stopped
from nscaching.files import FolderLock, save_tensors
from nscaching.runs import checkpoints as checkpoint
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import RunFolder
from nscaching.training import recorder as recording
from resuming import GRAPH, SETTINGS, Alarm, assert_same, leave_out_pictures, stopped

STATE = {"a": torch.arange(6.0).view(2, 3), "b.c": torch.tensor(7), "plain": [1, "ä"], "x": -1e9}


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    leave_out_pictures(monkeypatch)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Make a run folder with two checkpoints, and the run that must come of it."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)
        train(GRAPH, out=folder / "whole", **SETTINGS)
        stopped(folder / "run")
        with pytest.raises(Stopped):
            resume(folder / "run", listener=Hearing(stop=Alarm(5)))
    return folder


def refuse(text):
    raise AssertionError(text)


def equal(state, other):
    return state.keys() == other.keys() and all(
        torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
        for key, value in state.items()
    )


# Files.


def test_what_is_saved_comes_back(tmp_path):
    for number in range(1, 5):
        Checkpoints(tmp_path).save(STATE | {"number": number})
        assert equal(Checkpoints(tmp_path).newest(refuse), STATE | {"number": number})


def test_the_two_newest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest(refuse) is None
    for _ in range(4):
        checkpoints.save(STATE)
        (checkpoints.folder / "000009.safetensors.partial").touch()  # a crash has left it
    names = {"000003.safetensors", "000004.safetensors", "000009.safetensors.partial"}
    assert {file.name for file in checkpoints.folder.iterdir()} == names
    checkpoints.remove()
    assert not checkpoints.folder.exists()


def test_a_new_checkpoint_does_not_push_out_a_whole_one(tmp_path):
    first = Checkpoints(tmp_path)
    one, two = first.save(STATE), first.save(STATE)
    two.write_bytes(b"")
    again, said = Checkpoints(tmp_path), []
    again.newest(said.append)
    three = again.save(STATE)
    assert said == [
        f"{two} is damaged (cannot read it: Error while deserializing header: header too small): "
        "000001.safetensors is used"
    ]
    assert set(again.folder.iterdir()) == {one, three}


@given(tensors=st.dictionaries(st.text(max_size=3), st.sampled_from(list(range(7))), max_size=6))
@settings(max_examples=20, deadline=None)
def test_tensors_of_all_types_are_what_the_library_reads(tmp_path_factory, tensors):
    kinds = [
        torch.rand(2, 3, dtype=torch.float64), torch.rand(5), torch.rand(3).bfloat16(),
        torch.tensor([True]), torch.empty(0, 4), torch.arange(3, dtype=torch.uint8),
        torch.rand(4, 3, dtype=torch.float16).T,
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("tensors") / "file.safetensors"
    values = {f"n{name}": kinds[kind] for name, kind in tensors.items()}
    save_tensors(path, values, {"a": "ü"})
    assert equal(load_file(path), values)


# Damage.


def damaged(path, damage):
    newest = sorted(path.glob("checkpoints/*"))[-1]
    data = damage(bytearray(newest.read_bytes()))
    newest.write_bytes(data)
    return newest


@given(place=st.integers(0, 9999), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, place, bit):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("bits"))
    checkpoints.save(STATE)
    path = checkpoints.save(STATE | {"x": 2})
    data = bytearray(path.read_bytes())
    data[place * len(data) // 10000] ^= 1 << bit
    path.write_bytes(data)
    said = []
    assert equal(checkpoints.newest(said.append), STATE)
    assert len(said) == 1
    assert said[0].startswith(f"{path} is damaged (")
    assert "\n" not in said[0]


@given(share=st.integers(0, 9999))
@settings(max_examples=30, deadline=None)
def test_no_truncated_file_goes_unnoticed(tmp_path_factory, share):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("cut"))
    checkpoints.save(STATE)
    path = checkpoints.save(STATE | {"x": 2})
    os.truncate(path, share * path.stat().st_size // 10000)
    said = []
    assert equal(checkpoints.newest(said.append), STATE)
    assert len(said) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"not at all",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
)
def test_a_run_goes_on_from_the_checkpoint_before(two, tmp_path, damage):
    path = shutil.copytree(two / "run", tmp_path / "run")
    newest = damaged(path, damage)
    said, announced = [], []
    resume(path, listener=Hearing(note=said.append, announce=announced.append))
    assert len(said) == 1
    assert said[0].startswith(f"{newest} is damaged (")
    assert announced[0].startswith(f"{path}/checkpoints/000001.safetensors: resumes in epoch 2")
    assert_same(two / "whole", path)


def test_a_run_without_a_whole_checkpoint_is_left_alone(two, tmp_path):
    path = shutil.copytree(two / "run", tmp_path / "run")
    for file in path.glob("checkpoints/*"):
        file.write_bytes(file.read_bytes()[:-1])
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    said = []
    with pytest.raises(UserError, match="none of its checkpoints is whole; without that folder"):
        resume(path, listener=Hearing(note=said.append))
    assert len(said) == 2
    assert not any("is used" in text for text in said)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_another_format(two, tmp_path, monkeypatch):
    path = shutil.copytree(two / "run", tmp_path / "run")
    monkeypatch.setattr(checkpoint, "FORMAT", "0")
    Checkpoints(path).save(STATE)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"000003.safetensors has format '0', this version of nsca"):
        resume(path)


# The best parameters.


def test_the_best_parameters_are_kept_once(two):
    checkpoints = Checkpoints(two / "run")
    model = (two / "run" / "model.safetensors").stat()
    for file in checkpoints.files():
        assert not any(name.startswith("best.") for name in load_file(file))
    newest = checkpoint.best_of(checkpoints.files()[-1]).stat()
    assert (newest.st_ino, newest.st_nlink) == (model.st_ino, model.st_nlink)
    assert newest.st_nlink > 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: os.truncate(file, 100)])
def test_damaged_best_parameters(two, tmp_path, damage):
    path = shutil.copytree(two / "run", tmp_path / "run")
    newest = Checkpoints(path).files()[-1]
    damage(checkpoint.best_of(newest))
    said = []
    resume(path, listener=Hearing(note=said.append))
    assert said[0].startswith(f"{newest} is damaged (000002.best.safetensors, its best parameters")
    assert_same(two / "whole", path)


def test_better_parameters_after_a_checkpoint_leave_those_of_the_checkpoint(two, tmp_path):
    path = shutil.copytree(two / "run", tmp_path / "run")
    Checkpoints(path).newest(refuse)
    save_tensors(path / "model.safetensors", {"entity": torch.ones(1)}, {"epoch": "9"})
    resume(path)
    assert_same(two / "whole", path)


def test_a_disk_without_links(two, tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.files.Path.hardlink_to", no_room)
    stopped(tmp_path / "run")
    assert {f.stat().st_nlink for f in (tmp_path / "run").rglob("*") if f.is_file()} == {1}
    resume(tmp_path / "run")
    assert_same(two / "whole", tmp_path / "run")


def test_a_checkpoint_that_holds_the_best_parameters_itself(two, tmp_path, monkeypatch):
    path = shutil.copytree(two / "run", tmp_path / "run")
    checkpoints = Checkpoints(path)
    state = checkpoints.newest(refuse)
    best = load_file(checkpoint.best_of(checkpoints.whole[-1]))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", "1")
        checkpoints.save(state | {f"best.{name}": tensor for name, tensor in best.items()})
    resume(path)
    assert_same(two / "whole", path)


def test_a_disk_with_no_room_for_a_third_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(STATE)
    two = checkpoints.save(STATE)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: Mock(free=20))
    monkeypatch.setattr(checkpoint.files, "save_tensors", no_room)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(STATE)
    assert list(checkpoints.folder.iterdir()) == [two]


# Disks.


def no_room(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_costs_no_training(tmp_path, monkeypatch):
    """Checkpoints fail and are tried again; what is there stays whole."""
    train(GRAPH, out=tmp_path / "whole", **SETTINGS)
    monkeypatch.setattr(recording, "SHARE", float("inf"))
    syncs = iter([0] * 20 + [1] * 10)
    monkeypatch.setattr("nscaching.files.os.fsync", lambda file: next(syncs, 0) and no_room())
    said = []
    hearing = Hearing(note=said.append)
    train(GRAPH, out=tmp_path / "run", checkpoint_every=1e-9, listener=hearing, **SETTINGS)
    monkeypatch.undo()
    assert_same(tmp_path / "whole", tmp_path / "run")
    assert len(said) == 10
    for text in said:
        assert text.startswith(f"no checkpoint could be written: cannot write {tmp_path}/run/")
        assert text.endswith(": No space left on device")


def test_a_disk_that_is_full_when_it_is_stopped(two, tmp_path, monkeypatch):
    path = shutil.copytree(two / "run", tmp_path / "run")
    monkeypatch.setattr("nscaching.files.os.fsync", no_room)
    with pytest.raises(Stopped) as stop:
        resume(path, listener=Hearing(stop=Alarm(2)))
    monkeypatch.undo()
    assert str(stop.value).startswith("stopped in epoch 3 without a checkpoint: ")
    assert str(stop.value).endswith(f"; the one before is {path}/checkpoints/000002.safetensors")
    resume(path)
    assert_same(two / "whole", path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_full_disk_where_lines_are_written(two, tmp_path, monkeypatch, number):
    path = shutil.copytree(two / "run", tmp_path / "run")
    calls = iter(range(1, 99))
    inner = Path.open

    def fail(file, mode="r", *rest, **options):
        if mode not in ("r", "rb") and next(calls) == number:
            no_room()
        return inner(file, mode, *rest, **options)

    monkeypatch.setattr("nscaching.files.Path.open", fail)
    if number == 0:  # before the training goes on
        monkeypatch.setattr("nscaching.files.Path.hardlink_to", no_room)
        monkeypatch.setattr("nscaching.files.shutil.copyfile", no_room)
    hint = r"; to resume later: nscaching train --resume \S+/run" if number else ""
    with pytest.raises(UserError, match=rf"^cannot write \S+: No space left on device{hint}$"):
        resume(path)
    monkeypatch.undo()
    resume(path)
    assert_same(two / "whole", path)


def test_a_limit_of_the_file_size(tmp_path):
    """A real refusal by the system, in the middle of a file: what is half written goes away."""
    checkpoints = Checkpoints(tmp_path)
    whole = checkpoints.save(STATE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, before[1]))
    try:
        with pytest.raises(UserError, match=r"000002.safetensors: File too large"):
            checkpoints.save(STATE | {"large": torch.zeros(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(checkpoints.folder.iterdir()) == [whole]
    assert equal(checkpoints.newest(refuse), STATE)


def test_a_folder_that_cannot_be_written_to(two, tmp_path, monkeypatch):
    path = shutil.copytree(two / "run", tmp_path / "run")

    monkeypatch.setattr("nscaching.runs.folder.os.access", lambda *_: False)  # root may write
    with pytest.raises(UserError, match=r"cannot write \S+/run: the folder or its file system is"):
        resume(path)
    with pytest.raises(UserError, match=f"cannot write the run folder: {tmp_path} or its file sys"):
        RunFolder(tmp_path / "new" / "run").check_free(overwrite=False)  # before anything is done
    monkeypatch.undo()
    resume(path)
    assert_same(two / "whole", path)


# Processes.


def test_two_processes_on_one_folder(two, tmp_path):
    path = shutil.copytree(two / "run", tmp_path / "run")
    program = "import sys, nscaching.files as f, pathlib; lock = f.FolderLock(pathlib.Path(sys.argv"
    program += "[1])); print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        for attempt in (
            lambda: resume(path),
            lambda: train(GRAPH, out=path, overwrite=True, **SETTINGS),
        ):
            with pytest.raises(UserError, match="run is in use: another process is training there"):
                attempt()
        other.kill()
    resume(path)  # a process that was killed holds nothing
    assert_same(two / "whole", path)


def test_a_folder_is_held_while_it_is_trained(tmp_path):
    path = tmp_path / "run"

    def look(record):
        with pytest.raises(UserError, match="is in use"):
            FolderLock(path)

    train(GRAPH, out=path, listener=Hearing(record=look), **SETTINGS)
    FolderLock(path).release()


def test_a_run_that_is_in_use_when_another_would_replace_it(tmp_path):
    path = tmp_path / "run"
    train(GRAPH, out=path, **SETTINGS)
    locks = []

    def take(record):
        locks.append(FolderLock(path)) if not locks else None

    with pytest.warns(UserWarning, match=r"run is in use: .*; the new run is \S+/run.partial"):
        run = train(GRAPH, out=path, overwrite=True, listener=Hearing(record=take), **SETTINGS)
    locks[0].release()
    assert run.path == tmp_path / "run.partial"
    assert_same(path, run.path)


def test_fifty_kills(tmp_path):
    program = Path(__file__).parents[1] / "benchmarks" / "kills.py"
    words = [sys.executable, str(program), "--kills", "50", "--no-pictures"]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert (found["kills"], found["different"]) == (50, 0)


def test_a_checkpoint_of_the_version_that_stored_an_order(tmp_path, monkeypatch):
    stopped(tmp_path / "run")
    checkpoints = Checkpoints(tmp_path / "run")
    state = checkpoints.newest(str)
    monkeypatch.setattr(checkpoint, "FORMAT", "1")
    checkpoints.save({**state, "triples.random": torch.zeros(5056, dtype=torch.uint8)})
    monkeypatch.undo()
    said = []
    run = resume(tmp_path / "run", listener=Hearing(note=said.append))
    assert said == [
        f"the checkpoint in {tmp_path / 'run'} was written by an earlier version: "
        "the triples come in another order from here"
    ]
    assert [r["epoch"] for r in run.history if "split" not in r] == [1, 2, 3, 4]
