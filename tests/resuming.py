"""What tests of interrupted trainings share."""

from __future__ import annotations

import json

import torch
from safetensors.torch import load_file

from helpers import TINY, Hearing, random_graph
from nscaching import resume, train
from nscaching.errors import Stopped

GRAPH = random_graph(entities=15, train=60, valid=12, test=12)
SETTINGS = {**TINY, "epochs": 4, "validate_every": 2}


class Alarm:
    """Asks to stop at the given calls, counted over all trainings that it is given to."""

    def __init__(self, *numbers):
        self.calls, self.numbers = 0, set(numbers)

    def __call__(self):
        self.calls += 1
        return self.calls in self.numbers


def leave_out_pictures(patch):
    """Leave out what takes most of the time of so small a run."""
    patch.setattr("nscaching.runs.run.plot_run", lambda run, path: None)
    patch.setattr("nscaching.runs.run.Run.report", lambda run, **options: None)


def lines(path, name="metrics.jsonl"):
    """Return the lines of a file, but for what a clock measured, and what was sent."""
    text = (path / name).read_text(encoding="utf-8").splitlines() if (path / name).exists() else []
    return [
        {
            key: value
            for key, value in json.loads(line).items()
            if "seconds" not in key and key != "sent"
        }
        for line in text
    ]


def outcome(path):
    """Return all that a run folder holds, but for what a clock measured."""
    tensors = {
        f"{file.relative_to(path)} {name}": tensor
        for file in sorted(path.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }
    return tensors, lines(path), lines(path, "scores.jsonl")


def assert_same(path, other):
    """Compare two run folders to the last bit."""
    (tensors, *texts), (others, *other_texts) = outcome(path), outcome(other)
    assert texts == other_texts
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name
    assert not list(path.glob("*.partial")) + list(path.glob("checkpoints"))


def stopped(path, number=7, **settings):
    """Train until a step, and leave a run folder that can go on."""
    settings = {"checkpoint_every": 0, **SETTINGS, **settings}
    try:
        train(GRAPH, out=path, listener=Hearing(stop=Alarm(number)), **settings)
    except Stopped as stop:
        return str(stop)
    raise AssertionError("it did not stop")


def in_pieces(path, stop, **settings):
    """Train until it is finished, and go on as often as it is stopped; return how often."""
    stops, listener = 0, Hearing(stop=stop)
    while True:
        try:
            if stops == 0:
                train(GRAPH, out=path, listener=listener, checkpoint_every=0, **settings)
            else:
                resume(path, trust=True, listener=listener, checkpoint_every=0)
            return stops
        except Stopped:
            stops += 1
