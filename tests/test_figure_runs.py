"""The list of trainings behind the figures, and the runner that skips what is done."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from nscaching import TrainConfig
from nscaching.errors import UserError
from nscaching.paper.figures import KINDS
from nscaching.runs.folder import RunFolder

FILE = Path(__file__).parents[1] / "benchmarks" / "figure_runs.py"


@pytest.fixture(scope="module")
def runner():
    """Import the file, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("figure_runs", FILE)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "figure_runs", module)  # where dataclasses look
        spec.loader.exec_module(module)
        yield module


def test_every_figure_has_its_runs(runner):
    assert set(KINDS) == set(runner.FIGURES)
    for kind, (data, models) in runner.FIGURES.items():
        planned = [
            run for name in data for model in models for run in runner.trainings(kind, name, model)
        ]
        assert len({run.name for run in planned}) == len(planned)
        for run in planned:  # settings that exist
            TrainConfig.from_dict(runner.settings_of(run, {}))


def test_the_runs_of_the_paper(runner):
    def shape(kind, **rest):
        runs = runner.trainings(kind, "wn18", "TransD", **rest)
        return [(run.sampler, run.label, run.epochs) for run in runs]

    assert shape("convergence") == [
        ("bernoulli", "", 3000),
        ("nscaching", "pretrain", 1000), ("nscaching", "scratch", 1000),
        ("kbgan", "pretrain", 1000), ("kbgan", "scratch", 1000),
    ]  # fmt: skip
    shorter = [
        (run.epochs, run.start_epochs)
        for run in runner.trainings("convergence", "wn18", "TransD", kbgan_epochs=250)
        if run.pretrain
    ]
    assert shorter == [(1000, 100), (250, 100)]  # both start from the same run
    assert len(shape("sizes")) == 9  # (50, 50) is of both sweeps
    assert len(shape("strategies")) == 5
    assert {epochs for _, _, epochs in shape("convergence", epochs=7)} == {7}
    (run,) = runner.trainings("cache", "fb13", "TransD", epochs=150)
    assert run.probes == {"snapshots": (0, 20, 100)}


def test_what_is_done_is_left_and_what_was_stopped_is_begun_again(
    runner, tmp_path, monkeypatch, capsys
):
    calls, settings = [], {"dim": 2, "threads": 1, "validate_every": 0}

    def write(graph, config, out=None, **rest):
        if out is None:  # to compile the kernels
            return
        calls.append((Path(out).name, config))
        RunFolder(out).create(graph, config)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("nscaching.training.train.train", write)
    planned = [
        run
        for run in runner.trainings("convergence", "world", "TransE", epochs=20)
        if run.sampler == "nscaching"
    ]
    with pytest.raises(KeyboardInterrupt):
        runner.carry_out(planned, tmp_path, settings)
    names = ["world-transe-nscaching-pretrain", "world-transe-nscaching-scratch"]
    assert [path.name for path in tmp_path.glob("*") if path.name[0] != "."] == names[:1]
    runner.carry_out(planned, tmp_path, settings)
    assert [name for name, _ in calls] == ["world-transe-bernoulli", *names, names[1]]
    start, pretrained, scratch, _ = (config for _, config in calls)
    assert start.epochs == 2
    assert scratch.pretrain == ""
    assert Path(pretrained.pretrain) == tmp_path / ".starts" / "world-transe-bernoulli"
    runner.carry_out(planned, tmp_path, settings)
    assert len(calls) == 4
    assert capsys.readouterr().out.endswith("world-transe-nscaching-scratch: is there\n")
    with pytest.raises(UserError, match=r"trained otherwise \(dim is 2 there, 3 is asked for\)"):
        runner.carry_out(planned, tmp_path, {**settings, "dim": 3})
