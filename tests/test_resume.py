"""An interrupted training goes on as if it had not been: bit for bit."""

from __future__ import annotations

import json
import random

import pytest
import torch
from safetensors.torch import load_file

from helpers import TINY, random_graph
from nscaching import ProbeConfig, UserError, resume, train
from nscaching.checkpoint import Stopped
from nscaching.samplers import SAMPLERS

GRAPH = random_graph(entities=15, train=60, valid=12, test=12)
SETTINGS = {**TINY, "epochs": 4, "validate_every": 2}
PROBES = ProbeConfig(
    probe_repeats=2,
    probe_changes=True,
    probe_test=True,
    watch=2,
    watch_every=2,
    snapshots=(0, 1, 3),
)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Leave out what takes most of the time of so small a run."""
    monkeypatch.setattr("nscaching.run.plot_run", lambda run, path: None)
    monkeypatch.setattr("nscaching.run.Run.report", lambda run, **options: None)


class Alarm:
    """Asks to stop at the given calls, counted over all that it is given to."""

    def __init__(self, *numbers):
        self.calls, self.numbers = 0, set(numbers)

    def __call__(self):
        self.calls += 1
        return self.calls in self.numbers


def lines(path, name="metrics.jsonl"):
    text = (path / name).read_text(encoding="utf-8").splitlines() if (path / name).exists() else []
    return [
        {key: value for key, value in json.loads(line).items() if "seconds" not in key}
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


def same(path, other):
    """Compare two run folders."""
    (tensors, *texts), (others, *other_texts) = outcome(path), outcome(other)
    assert texts == other_texts
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


def in_pieces(path, stop, settings, probes=None, graph=GRAPH):
    """Train until it is finished, and go on as often as it is stopped; return how often."""
    stops = 0
    while True:
        try:
            if stops == 0:
                train(graph, out=path, stop=stop, probes=probes, checkpoint_every=0, **settings)
            else:
                resume(path, stop=stop, checkpoint_every=0)
            return stops
        except Stopped as stopped:
            assert f"nscaching train --resume {path}" in str(stopped)
            stops += 1


def check(tmp_path, settings, probes=None, graph=GRAPH, stops=3):
    settings = {**SETTINGS, **settings}
    counter = Alarm()
    train(graph, out=tmp_path / "whole", stop=counter, probes=probes, **settings)
    seed = str(sorted(settings.items()))
    numbers = random.Random(seed).sample(range(1, counter.calls + 1), stops)
    assert in_pieces(tmp_path / "pieces", Alarm(*numbers), settings, probes, graph) == stops
    same(tmp_path / "whole", tmp_path / "pieces")
    assert not (tmp_path / "pieces" / "checkpoints").exists()


@pytest.mark.parametrize("kernels", ["numba", "reference"])
@pytest.mark.parametrize("sampler", SAMPLERS.names())
@pytest.mark.parametrize("filter_known", [False, True])
def test_samplers(tmp_path, kernels, sampler, filter_known):
    filtered = filter_known and sampler != "none"
    check(tmp_path, {"sampler": sampler, "kernels": kernels, "filter_known": filtered})


@pytest.mark.parametrize("kernels", ["numba", "reference"])
@pytest.mark.parametrize("model", ["TransE", "TransH", "TransD", "ComplEx", "TransM", "RotatE"])
@pytest.mark.parametrize("optimizer", ["adam", "row-adam", "adagrad"])
def test_models_and_optimizers(tmp_path, kernels, model, optimizer):
    check(tmp_path, {"model": model, "optimizer": optimizer, "kernels": kernels, "penalty": 0.1})
