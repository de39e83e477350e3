"""What a person sees while something takes time: here, lines of a log."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nscaching.config import TrainConfig
from nscaching.training import display as progress
from nscaching.training.display import Bar, TrainingDisplay
from nscaching.training.listener import Stage


@pytest.fixture
def clock(monkeypatch):
    """Let a test say what time it is."""
    now = [0.0]
    # Not the clock of all: loops in threads of other tests would sleep until that time.
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def shown(bar, clock, at, done, capsys):
    clock[0] = at
    bar.show(done, 1000.0, "x")
    return capsys.readouterr().err


def test_the_first_step_is_no_pace_to_judge_by(clock, capsys):
    bar = Bar("run")
    assert shown(bar, clock, 20.0, 1.0, capsys) == "run: x\n"  # 20 seconds of compiling
    assert shown(bar, clock, 32.0, 101.0, capsys) == "run: x  108 s left\n"
    assert shown(bar, clock, 920.0, 201.0, capsys) == "run: x  60 min left\n"


def test_what_was_done_before_took_no_time(clock, capsys):
    bar = Bar("run")
    bar.first = bar.done = 500.0
    assert shown(bar, clock, 20.0, 500.0, capsys) == "run: x\n"
    assert shown(bar, clock, 40.0, 600.0, capsys) == "run: x\n"
    assert shown(bar, clock, 60.0, 800.0, capsys) == "run: x  20 s left\n"


def test_each_stage_has_a_pace_of_its_own(clock, capsys):
    bar = Bar("run")
    for what, start in (("read", 0.0), ("sorted", 100.0)):
        for at, done, left in ((11.0, 1, ""), (22.0, 2, "  88 s left"), (33.0, 4, "  44 s left")):
            clock[0] = start + at
            bar.stage(what, done, 10)
            assert capsys.readouterr().err == f"run: {what} {10 * done}%{left}\n"


def test_compiling_does_not_count_as_pace(clock, capsys):
    display = TrainingDisplay("name", TrainConfig(epochs=10))
    clock[0] = 100.0  # so long took the first step
    display.progress(Stage.TRAINING, 1, 100)
    clock[0] = 199.0
    display.progress(Stage.TRAINING, 100, 100)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "name: epoch 0/10    15 min left"


def test_what_comes_before_the_first_step_has_a_pace_of_its_own(clock, capsys):
    display = TrainingDisplay("name", TrainConfig(epochs=10))
    clock[0] = 50.0
    display.progress(Stage.FILLING, 10, 100)
    clock[0] = 70.0
    display.progress(Stage.FILLING, 50, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "name: filling the cache 50%  25 s left"


def test_notes_are_seen_and_not_obeyed(capsys):
    TrainingDisplay("name", TrainConfig()).note("\x1b[2J")
    assert capsys.readouterr().err == "note: \\x1b[2J\n"
