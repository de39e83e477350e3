"""An interrupted training goes on as if it had not been: bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import random
import shutil

import pytest
import torch

from helpers import Hearing
from nscaching import ProbeConfig, Run, UserError, resume, train
from nscaching.errors import Stopped
from nscaching.runs.folder import RunFolder
from nscaching.samplers import SAMPLERS
from nscaching.training import recorder
from nscaching.training.trainer import Trainer
from resuming import (
    GRAPH,
    SETTINGS,
    Alarm,
    assert_same,
    in_pieces,
    leave_out_pictures,
    lines,
    stopped,
)

PROBES = ProbeConfig(
    probe_repeats=2, probe_changes=True, probe_test=True, watch=2, watch_every=2,
    snapshots=(0, 1, 3),
)  # fmt: skip

MINE = """
import torch
from nscaching.samplers import Sampler


class Counting(Sampler):
    '''Prefers what it has drawn seldom; draws at random besides, and shifts all once an epoch.'''

    one_side = True

    def __init__(self, graph, config, device, seed, kernels=None):
        super().__init__(graph, config, device, seed, kernels)
        self.seen = torch.zeros(self.entities, dtype=torch.int64)

    def begin_epoch(self, epoch):
        self.seen += epoch

    def negatives(self, batch, model):
        some = self.random_entities(len(batch), 3)
        self.entity = some.gather(1, self.seen[some].argmin(1, keepdim=True))
        return batch.corrupt(self.choose_head(batch), self.entity, self.entity)

    def update(self, batch, model):
        self.seen.index_add_(0, self.entity[:, 0], torch.ones_like(self.entity[:, 0]))

    def state(self):
        return {"seen": self.seen}
"""


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    leave_out_pictures(monkeypatch)


def check(tmp_path, stops=3, probes=None, **settings):
    """Compare a training in one go with one that was stopped at random moments."""
    settings = {**SETTINGS, **settings}
    counter = Alarm()
    train(GRAPH, out=tmp_path / "whole", listener=Hearing(stop=counter), probes=probes, **settings)
    moments = random.Random(str(sorted(settings.items())))
    numbers = moments.sample(range(1, counter.calls + 1), stops)
    assert in_pieces(tmp_path / "pieces", Alarm(*numbers), probes=probes, **settings) == stops
    assert_same(tmp_path / "whole", tmp_path / "pieces")


both_kernels = pytest.mark.parametrize("kernels", ["numba", "reference"])


@both_kernels
@pytest.mark.parametrize("sampler", SAMPLERS.names())
def test_every_sampler(tmp_path, kernels, sampler):
    check(tmp_path, sampler=sampler, kernels=kernels)


@pytest.mark.parametrize("sampler", ["nscaching", "uniform", "kbgan"])
def test_samplers_that_avoid_known_triples(tmp_path, sampler):
    check(tmp_path, sampler=sampler, filter_known=True)


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("TransD", "adam"), ("TransD", "row-adam"), ("TransH", "adam"), ("ComplEx", "row-adam")],
)
def test_compiled_learners(tmp_path, model, optimizer):
    check(tmp_path, model=model, optimizer=optimizer, penalty=0.1, kernels="numba")


@pytest.mark.parametrize("optimizer", ["adam", "row-adam", "adagrad"])
@pytest.mark.parametrize("model", ["TransD", "TransM", "RotatE"])
def test_learners_by_autograd(tmp_path, model, optimizer):
    check(tmp_path, model=model, optimizer=optimizer, penalty=0.1, kernels="reference")


@pytest.mark.parametrize("objective", ["1vsall", "kvsall"])
def test_learners_against_all_entities(tmp_path, objective):
    settings = {"objective": objective, "model": "ComplEx", "penalty_norm": "n3", "penalty": 0.1}
    check(tmp_path, sampler="none", **settings)


@pytest.mark.parametrize(
    ("settings", "probes"),
    [
        ({"refresh": "top", "lazy": 1}, dataclasses.replace(PROBES, probe_repeats=0)),
        ({"n1": 0, "reciprocal": True, "relation_weight": 0.1}, ProbeConfig(watch=2)),
        ({"sampler": "bernoulli", "optimizer": "row-adam", "kernels": "reference"}, None),
    ],
)
def test_a_cached_softmax(tmp_path, settings, probes):
    check(tmp_path, probes=probes, objective="softmax", model="ComplEx", tail=6, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"lazy": 1, "draw": "importance"},
        {"refresh_side": "drawn", "candidates": "slots", "negatives": 2},
        {"patience": 1, "lr": 1e-12, "epochs": 9},
        {"validate_every": 0},
    ],
)
def test_other_settings(tmp_path, settings):
    check(tmp_path, **settings)


@both_kernels
def test_probes(tmp_path, kernels):
    check(tmp_path, stops=6, probes=PROBES, kernels=kernels)


def test_every_single_step(tmp_path):
    check(tmp_path, stops=20, probes=PROBES, model="TransD")


def test_a_sampler_of_the_user_s(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    check(tmp_path, stops=5, sampler=f"{tmp_path / 'mine.py'}:Counting")


def test_a_sampler_that_keeps_nothing_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(MINE.split("    def state")[0])
    stopped(tmp_path / "run", sampler=f"{tmp_path / 'mine.py'}:Counting")
    said = []
    resume(tmp_path / "run", trust=True, listener=Hearing(note=said.append))
    assert said == ["Counting learns, but has no state to keep: it starts from the beginning"]


def test_a_crash_between_checkpoints(tmp_path, monkeypatch):
    """At most what came after the last checkpoint is lost; lines after it are written anew."""

    class BreakError(Exception):
        pass

    monkeypatch.setattr(recorder, "SHARE", float("inf"))
    train(GRAPH, out=tmp_path / "whole", probes=PROBES, **SETTINGS)
    calls, clock = itertools.count(1), itertools.count()

    def fail(stage, done, total):
        if next(calls) in (9, 18, 22, 25):
            raise BreakError

    # Every third step or so a checkpoint is due.
    monkeypatch.setattr("nscaching.training.recorder.time.monotonic", lambda: float(next(clock)))
    options = {"listener": Hearing(progress=fail), "checkpoint_every": 3}
    with pytest.raises(BreakError):
        train(GRAPH, out=tmp_path / "pieces", probes=PROBES, **options, **SETTINGS)
    with (tmp_path / "pieces" / "metrics.jsonl").open("a") as file:
        file.write('{"half a li')
    for _ in range(3):
        with pytest.raises(BreakError):
            resume(tmp_path / "pieces", **options)
        assert 1 <= len(list((tmp_path / "pieces" / "checkpoints").iterdir())) <= 2
    resume(tmp_path / "pieces", **options)
    assert_same(tmp_path / "whole", tmp_path / "pieces")


def test_what_it_gives_back(tmp_path):
    stopped(tmp_path / "run", number=12)
    begun, announced = [], []
    run = resume(tmp_path / "run", listener=Hearing(begin=begun.append, announce=announced.append))
    loaded, whole = Run.load(tmp_path / "run", "cpu"), train(GRAPH, **SETTINGS)
    assert loaded.history == run.history
    assert (run.best_epoch, run.path) == (whole.best_epoch, tmp_path / "run")
    assert begun[0] == run.history[: len(begun[0])] != []
    assert announced[0].endswith("000001.safetensors: resumes in epoch 3, of which 53 % is done")
    for split in ("valid", "test"):
        assert run.evaluate(split) == whole.evaluate(split)
    seconds = [record["seconds"] for record in run.history]
    assert all(0 < value < 60 for value in seconds)


def test_the_hint_names_the_folder(tmp_path):
    hint = stopped(tmp_path / "a run")
    assert hint == f"stopped in epoch 2; to resume: nscaching train --resume '{tmp_path}/a run'"
    with pytest.raises(Stopped, match=r"^stopped in epoch 1$"):
        train(GRAPH, listener=Hearing(stop=Alarm(1)), **SETTINGS)


def test_a_finished_run_keeps_no_checkpoint(tmp_path):
    stopped(tmp_path / "run")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1
    resume(tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(UserError, match="run is finished: there is nothing to resume"):
        resume(tmp_path / "run")


def test_without_a_checkpoint_it_begins_anew(tmp_path):
    train(GRAPH, out=tmp_path / "whole", **SETTINGS)
    stopped(tmp_path / "run", number=12)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    announced = []
    resume(tmp_path / "run", listener=Hearing(announce=announced.append))
    assert announced[0] == f"{tmp_path / 'run'} has no checkpoint yet: training starts at epoch 1"
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("number", [3, 22])
def test_a_run_that_replaces_another(tmp_path, number):
    path = tmp_path / "run"
    train(GRAPH, out=path, **{**SETTINGS, "epochs": 1})
    before = lines(path)
    hint = stopped(path, number=number, overwrite=True, pretrain=str(path))
    assert hint.endswith(f"--resume {path}.partial")
    assert lines(path) == before
    run = resume(f"{path}.partial")
    assert (run.path, lines(path)) == (path, lines(run.path))
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert len(Run.load(path, "cpu").history) > len(before)


def test_what_it_started_from_may_be_gone(tmp_path):
    for name, model in (("before", "TransE"), ("generator", "DistMult")):
        train(GRAPH, out=tmp_path / name, **SETTINGS | {"model": model})
    starts = {"pretrain": "before", "generator_pretrain": "generator"}
    starts = {key: str(tmp_path / name) for key, name in starts.items()}
    settings = {**SETTINGS, **starts, "sampler": "kbgan", "generator": "DistMult"}
    train(GRAPH, out=tmp_path / "whole", **settings)
    stopped(tmp_path / "run", **settings)
    shutil.rmtree(tmp_path / "before")
    shutil.rmtree(tmp_path / "generator")
    resume(tmp_path / "run")
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize(("one", "other"), [("numba", "reference"), ("reference", "numba")])
@pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
def test_other_kernels_go_on_nearly_alike(tmp_path, one, other, optimizer):
    # With one seed in five, rounding decides which negatives a step has.
    settings = {**SETTINGS, "model": "TransD", "optimizer": optimizer, "seed": 2}
    whole = train(GRAPH, kernels=one, **settings)
    stopped(tmp_path / "run", number=9, kernels=one, **settings)
    said = []
    run = resume(tmp_path / "run", kernels=other, listener=Hearing(note=said.append))
    assert [text.partition(" will")[2] for text in said] == [
        f" differ from an uninterrupted run: its kernels was {one} and is {other}"
    ]
    for (name, table), twin in zip(
        run.model.named_parameters(), whole.model.parameters(), strict=True
    ):
        far = ((table - twin).abs() > 0.1 * SETTINGS["lr"]).float().mean()
        assert far < 0.2, name  # what rounding decides grows from step to step


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dim = 4", "dim = 5", "the run has dim 4 and cannot resume with 5"),
        (
            "epochs = 4",
            "epochs = 3",
            "the run has epochs 4 and cannot resume with 3",
        ),
        ("format = 1", "format = 9", "run has format 9, this version of nscaching reads 1: use"),
    ],
)
def test_another_configuration(tmp_path, old, new, message):
    stopped(tmp_path / "run")
    file = tmp_path / "run" / "config.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        resume(tmp_path / "run")


@pytest.mark.parametrize("number", [3, 12, 16])
def test_more_epochs(tmp_path, number):
    """Asked for before the last is trained, they come out as if they had been from the start."""
    train(GRAPH, out=tmp_path / "whole", **{**SETTINGS, "epochs": 6})
    stopped(tmp_path / "run", number=number)
    with pytest.raises(Stopped):
        resume(tmp_path / "run", epochs=6, listener=Hearing(stop=Alarm(1)))
    assert resume(tmp_path / "run").config.epochs == 6
    assert_same(tmp_path / "whole", tmp_path / "run")
    configs = [(tmp_path / name / "config.toml").read_text() for name in ("whole", "run")]
    assert configs[0] == configs[1]


def test_more_epochs_when_all_are_trained(tmp_path):
    message = stopped(tmp_path / "run", number=21)  # in the ranking of the test triples
    assert message.startswith("stopped in epoch 4")
    before = (tmp_path / "run" / "config.toml").read_text()
    for epochs, reason in ((6, "all its 4 epochs are trained"), (3, "was begun with 4, give more")):
        with pytest.raises(UserError, match=reason):
            resume(tmp_path / "run", epochs=epochs)
    assert (tmp_path / "run" / "config.toml").read_text() == before
    announced = []
    resume(tmp_path / "run", listener=Hearing(announce=announced.append))
    assert "all epochs are done" in announced[0]


def test_a_finished_run_without_its_card_is_not_begun_anew(tmp_path):
    train(GRAPH, out=tmp_path / "run", **SETTINGS)
    (tmp_path / "run" / "README.md").unlink()
    (tmp_path / "run" / "training.png").write_text("")  # which these tests leave out
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="is finished: there is nothing to resume; to train more"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == model


def test_a_report_of_an_unfinished_run_does_not_end_it(tmp_path):
    path = tmp_path / "run"
    stopped(path)
    for file in (path / "checkpoints").iterdir():
        file.unlink()  # as if it was killed before the first
    (path / "report.html").write_text("")
    assert not RunFolder(path).finished


def test_out_of_memory_when_it_goes_on(tmp_path, monkeypatch):
    stopped(tmp_path / "run")
    monkeypatch.setattr(Trainer, "epoch", lambda *_: torch.empty(1 << 60))
    with pytest.raises(UserError, match="run: not enough memory to resume: free some, or res"):
        resume(tmp_path / "run")


def test_metrics_that_lost_lines(tmp_path):
    stopped(tmp_path / "run", number=12)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match=r"metrics.jsonl is shorter than when the checkpoint was"):
        resume(tmp_path / "run")


def test_a_model_that_has_changed_since(tmp_path, monkeypatch):
    stopped(tmp_path / "run")
    monkeypatch.setattr(
        "nscaching.models.translational.TransE.load_state_dict",
        lambda model, state: torch.nn.Linear(1, 1).load_state_dict(state),
    )
    with pytest.raises(UserError, match="run: its checkpoint does not fit TransE and nscaching: "):
        resume(tmp_path / "run")


def test_no_checkpoint_of_what_is_not_finite(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "SHARE", float("inf"))
    settings = {**SETTINGS, "lr": 1e38, "model": "DistMult", "checkpoint_every": 1e-9}
    with pytest.raises(UserError, match="the loss is"):
        train(GRAPH, out=tmp_path / "run", **settings)
    states = (tmp_path / "run" / "checkpoints").glob("*")
    from safetensors.torch import load_file

    tables = [table for file in states for table in load_file(file).values()]
    assert all(torch.isfinite(table).all() for table in tables)


# Checkpoints without a run folder.


def without_times(history):
    return [{k: v for k, v in record.items() if "seconds" not in k} for record in history]


@pytest.mark.parametrize("sampler", ["nscaching", "kbgan"])
def test_the_same_call_goes_on_from_checkpoints_alone(tmp_path, sampler):
    settings = {**SETTINGS, "sampler": sampler}
    counter = Alarm()
    whole = train(GRAPH, listener=Hearing(stop=counter), **settings)
    alarm, stops, heard = Alarm(3, counter.calls // 2, counter.calls - 2), [], []
    while True:
        try:
            listener = Hearing(stop=alarm, record=heard.append)
            run = train(GRAPH, checkpoints=tmp_path / "some", listener=listener, **settings)
            break
        except Stopped as stop:
            stops.append(str(stop))
    assert [stop.partition("; ")[2] for stop in stops] == ["the same command resumes it"] * 3
    assert without_times(run.history) == without_times(whole.history)
    assert without_times(heard) == without_times(whole.history)  # each record once
    for name, parameters in whole.model.state_dict().items():
        assert torch.equal(parameters, run.model.state_dict()[name])
    for name, kept in whole.sampler_state.items():
        assert torch.equal(kept, run.sampler_state[name])
    assert run.best_epoch == whole.best_epoch
    assert run.result("test")["mrr"] == whole.result("test")["mrr"]
    assert [file.name for file in tmp_path.iterdir()] == ["some"]


def test_checkpoints_alone_of_other_settings_are_refused(tmp_path):
    with pytest.raises(Stopped):
        train(GRAPH, checkpoints=tmp_path, listener=Hearing(stop=Alarm(3)), **SETTINGS)
    with pytest.raises(UserError, match=rf"{tmp_path}.*has lr .* and cannot resume with 0.5"):
        train(GRAPH, checkpoints=tmp_path, **{**SETTINGS, "lr": 0.5})


def test_checkpoints_alone_are_held_by_one_training(tmp_path):
    def again(record):
        with pytest.raises(UserError, match="in use"):
            train(GRAPH, checkpoints=tmp_path, **SETTINGS)

    train(GRAPH, checkpoints=tmp_path, listener=Hearing(record=again), **SETTINGS)
    train(GRAPH, checkpoints=tmp_path, probes=ProbeConfig(), **SETTINGS)  # none of which is on


def test_checkpoints_of_a_run_folder_are_none_alone(tmp_path):
    stopped(tmp_path / "run")
    with pytest.raises(UserError, match="does not fit"):
        train(GRAPH, checkpoints=tmp_path / "run", **SETTINGS)


@pytest.mark.parametrize("other", ["out", "probes"])
def test_what_checkpoints_alone_do_not_go_with(tmp_path, other):
    given = {"out": tmp_path / "run", "probes": ProbeConfig(probe_changes=True)}[other]
    with pytest.raises(UserError, match="no run folder, which has its own, nor probes"):
        train(GRAPH, checkpoints=tmp_path / "some", **{other: given}, **SETTINGS)


@pytest.mark.parametrize("settings", [{"lr": 0.5}, {"dim": 3}, {"sampler": "uniform"}])
def test_settings_of_a_run_do_not_change(tmp_path, settings):
    stopped(tmp_path / "run")
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        resume(tmp_path / "run", **settings)
