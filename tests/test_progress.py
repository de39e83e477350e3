"""What a person sees while something takes time."""

from __future__ import annotations

import pytest

from nscaching import progress
from nscaching.config import TrainConfig
from nscaching.progress import TrainingDisplay


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose one number is the time."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_compiling_does_not_count_as_pace(clock, capsys):
    display = TrainingDisplay("name", TrainConfig(epochs=10))
    clock[0] = 100.0  # so long took the first step
    display.progress("training", 1, 100)
    clock[0] = 199.0
    display.progress("training", 100, 100)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "name: epoch 0/10    900 s left"


def test_what_comes_before_the_first_step_has_a_pace_of_its_own(clock, capsys):
    display = TrainingDisplay("name", TrainConfig(epochs=10))
    clock[0] = 50.0
    display.progress("filling the cache", 10, 100)
    clock[0] = 70.0
    display.progress("filling the cache", 50, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "name: filling the cache 50%  20 s left"


def test_notes_are_seen_and_not_obeyed(capsys):
    TrainingDisplay("name", TrainConfig()).note("\x1b[2J")
    assert capsys.readouterr().err == "note: \\x1b[2J\n"
