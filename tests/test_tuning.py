"""The search: it repeats nothing, stops what is hopeless, and goes on after any end."""

from __future__ import annotations

import csv
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from matplotlib.figure import Figure
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from helpers import TINY, graph_of, random_graph
from nscaching import TrainConfig, UserError, train, tune
from nscaching.cli import main as cli
from nscaching.config import read_toml
from nscaching.errors import as_flag
from nscaching.models.bilinear import DistMult
from nscaching.models.translational import TransE
from nscaching.samplers.fixed import Uniform
from nscaching.training.trainer import Trainer
from nscaching.tuning import search
from nscaching.tuning.plot import _course
from nscaching.tuning.result import Trial, Tuning, trial_of

FIXED = {name: TINY[name] for name in TINY if name not in ("dim", "lr", "margin")}
FIXED |= {"kernels": "reference", "epochs": 10}
GRID = {"dim": [2, 3], "lr": [0.001, 0.01, 0.1], "margin": [1.0, 2.0, 3.0, 4.0]}
LINES = "dim = [2, 3]\nlr = [0.001, 0.01, 0.1]\nmargin = {low = 1, high = 4}\n"


@pytest.fixture(scope="module")
def graph():
    return random_graph(entities=20, train=100, valid=10, test=10)


@pytest.fixture
def quick(monkeypatch):
    """Let a training take no time, its MRR a function of its settings; return what was trained."""
    trained = []

    def run(graph, config, *, listener):
        trained.append(config)
        if len(trained) in run.raises:
            raise run.raises[len(trained)]
        final = {0.001: 0.1, 0.01: 0.3, 0.1: 0.2}[config.lr] + 0.01 * config.margin
        for epoch in range(1, config.epochs + 1):
            listener.record({"epoch": epoch, "loss": 1.0, "seconds": 0.0})
            listener.record(
                {"epoch": epoch, "split": "valid", "mrr": final * epoch / config.epochs}
            )
        return SimpleNamespace(result=lambda split: {"mrr": final})

    run.raises, run.trained = {}, trained
    monkeypatch.setattr(search, "train", run)
    monkeypatch.setattr("os.fsync", lambda file: None)
    return run


@pytest.fixture
def _no_plot(monkeypatch):
    monkeypatch.setattr("nscaching.tuning.result.Tuning.plot", lambda self, path: None)


def settings_of(tuning):
    return [tuple(trial.settings.items()) for trial in tuning.trials]


def rows_of(path):
    with (path / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# What is tried.


@pytest.mark.parametrize("seed", [0, 1])
def test_a_grid_is_covered_without_repeats(graph, quick, seed):
    tuning = tune(graph, GRID, trials=99, seed=seed, **FIXED)
    assert sorted(settings_of(tuning)) == sorted(
        tuple(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())
    )
    assert tuning.best.settings["lr"] == 0.01
    assert tuning.best.settings["margin"] == 4.0
    other = tune(graph, GRID, trials=5, seed=seed + 2, **FIXED)
    assert settings_of(other) != settings_of(tuning)[:5]


def test_the_search_learns_where_to_look(graph, quick):
    space = {"lr": GRID["lr"], "margin": {"low": 0.1, "high": 10.0, "log": True}}
    tuning = tune(graph, space, trials=40, **FIXED)
    assert len(set(settings_of(tuning))) == 40
    late = [trial.settings for trial in tuning.trials[20:]]
    assert sum(settings["lr"] == 0.01 for settings in late) > 13  # a third by chance: 7 of 20
    assert list(tuning.importance()) == ["lr", "margin"]


def test_a_trial_is_a_training_that_never_sees_the_test_triples(graph):
    heard, watch = [], search.Watch()
    watch.record = heard.append
    tuning = tune(graph, GRID, trials=2, watch=watch, **{**FIXED, "epochs": 3})
    assert {record.get("split") for record in heard} == {None, "valid"}
    # Filtered by the test triples all the same: the figures are those of training.
    run = train(graph, tuning.best_config)
    assert run.result("valid")["mrr"] == tuning.best.mrr
    assert run.best_epoch == tuning.best.best_epoch


def test_classes_may_stand_where_names_go(graph):
    class Own(DistMult):
        pass

    settings = {**FIXED, "epochs": 1, "dim": 2}
    del settings["model"]
    tuning = tune(graph, {"lr": [0.01]}, model=Own, **settings)
    assert tuning.best_config.model.endswith(":test_classes_may_stand_where_names_go.<locals>.Own")
    assert tune(graph, {"lr": [0.01]}, model=DistMult, **settings).config.model == "DistMult"
    space = {"model": [Own, TransE], "sampler": [Uniform]}
    settings.pop("sampler", None)
    found = tune(graph, space, trials=2, **settings)
    assert {trial.state for trial in found.trials} == {"finished"}
    models = [trial.settings["model"] for trial in found.trials]
    assert set(models) == {tuning.best_config.model, "TransE"}


# Trials that come to a bad end.


def test_a_hopeless_trial_is_stopped_early(graph, quick):
    tuning = tune(graph, GRID, trials=24, **FIXED)
    pruned = [trial for trial in tuning.trials if trial.state == "pruned"]
    assert len(pruned) > 5
    assert all(trial.settings["lr"] != 0.01 for trial in pruned)
    assert all(trial.epochs == 3 for trial in pruned)  # judged from three tenths on
    assert all(trial.mrr < tuning.best.mrr for trial in pruned)
    assert all(trial.state == "finished" for trial in tuning.trials[:5])


def test_a_learning_rate_that_learns_nothing_is_stopped_early():
    blocks = [(i, 0, j) for i in range(24) for j in range(24) if i // 6 == j // 6 and i != j]
    graph = graph_of(blocks[::2], blocks[1::6], blocks[3::6])
    space = {"lr": [1e-9, 0.02, 0.03, 0.05, 0.06, 0.07, 0.08]}
    settings = {**FIXED, "model": "DistMult", "dim": 8, "sampler": "uniform", "seed": 0}
    tuning = tune(graph, space, trials=7, **settings)
    (hopeless,) = [trial for trial in tuning.trials if trial.settings["lr"] == 1e-9]
    assert (hopeless.state, hopeless.epochs) == ("pruned", 3)


def test_one_that_diverges_counts_as_failed_and_the_search_goes_on(graph, tmp_path):
    space = {"lr": [1e38, 0.01]}
    settings = {**FIXED, "model": "DistMult", "epochs": 2}
    tuning = tune(graph, space, trials=2, out=tmp_path / "x", **settings)
    (failed,) = [trial for trial in tuning.trials if trial.state == "failed"]
    assert failed.settings == {"lr": 1e38}
    assert failed.reason.startswith("the loss is ")
    assert tuning.best.settings == {"lr": 0.01}
    assert {row["reason"] for row in rows_of(tmp_path / "x")} == {"", failed.reason}
    with pytest.raises(UserError, match=r"^none of 1 trials finished; the last: the loss is"):
        tune(graph, {"lr": [1e38]}, **settings).best  # noqa: B018


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory.\nTried to")])
def test_lack_of_memory_counts_as_failed(graph, monkeypatch, error):
    def allocate(graph, config, *rest):
        if config.dim == 3:
            raise error
        return Trainer(graph, config, *rest)

    monkeypatch.setattr("nscaching.training.train.Trainer", allocate)
    tuning = tune(graph, {"dim": [2, 3]}, **{**FIXED, "epochs": 1})
    failed, finished = sorted(tuning.trials, key=lambda trial: trial.state)
    assert (failed.state, failed.settings) == ("failed", {"dim": 3})
    assert failed.reason.startswith("out of memory: this training ")
    assert (finished.state, finished.settings) == ("finished", {"dim": 2})


def test_a_bug_ends_the_search_and_its_trial_is_run_again(graph, quick, tmp_path):
    quick.raises = {2: UserError("the\nreason"), 3: RuntimeError("?")}
    with pytest.raises(RuntimeError, match=r"^\?$"):
        tune(graph, GRID, trials=5, out=tmp_path / "x", **FIXED)
    tuning = tune(graph, GRID, trials=5, out=tmp_path / "x", **FIXED)
    assert [trial.state for trial in tuning.trials] == ["finished", "failed", *["finished"] * 3]
    assert tuning.trials[1].reason == "the reason"
    assert quick.trained[3] == quick.trained[2]


def test_a_recorded_trial_without_validations_counts_as_failed():
    trial = trial_of(1, optuna.trial.create_trial(value=0.0))
    assert (trial.state, trial.mrr, trial.reason) == ("failed", 0.0, "it was never validated")


# Going on.


@pytest.mark.parametrize("stop", [1, 4, 13])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(graph, quick, tmp_path, stop):
    space = {**GRID, "margin": {"low": 1.0, "high": 4.0}}
    whole = tune(graph, space, trials=16, **FIXED)
    quick.trained.clear()
    quick.raises = {stop: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        tune(graph, space, trials=16, out=tmp_path / "x", **FIXED)
    assert len(rows_of(tmp_path / "x")) == stop - 1
    tuning = tune(graph, space, trials=12, out=tmp_path / "x", **FIXED)
    assert len(tuning.trials) == max(12, stop - 1)
    tuning = tune(graph, space, trials=16, out=tmp_path / "x", **FIXED)
    plain = [(trial.settings, trial.mrr, trial.state) for trial in tuning.trials]
    assert plain == [(trial.settings, trial.mrr, trial.state) for trial in whole.trials]
    assert tune(graph, space, trials=3, out=tmp_path / "x", **FIXED).trials == tuning.trials


@pytest.fixture(scope="module")
def data(graph, tmp_path_factory):
    """Write the graph as files, and a space beside them."""
    folder = tmp_path_factory.mktemp("files") / "data"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in graph.split(split)]
        (folder / f"{split}.txt").write_text("".join(lines))
    (folder.parent / "my.toml").write_text(LINES)
    return folder


def words_of(data, *more, **settings):
    words = ["tune", str(data), "--space", str(data.parent / "my.toml"), *map(str, more)]
    for name, value in {**FIXED, **settings}.items():
        words += [as_flag(name), str(value)]
    return words


@pytest.mark.usefixtures("_no_plot")
def test_it_survives_being_killed(graph, data, tmp_path, capsys):
    out = tmp_path / "out"
    words = words_of(data, "--out", out, "--json", epochs=1)
    # Trials without end, until it is killed in one of them.
    command = [sys.executable, "-m", "nscaching", *words, "--trials", "100000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not (out / "best.toml").exists() or len(rows_of(out)) < 2:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        with pytest.raises(UserError, match="out is in use: another process"):
            tune(graph, GRID, out=out)
        process.send_signal(signal.SIGKILL)
    before = rows_of(out)
    cli.main([*words, "--trials", str(len(before) + 3)])
    found, after = json.loads(capsys.readouterr().out), rows_of(out)
    assert len(after) == len(found["trials"]) == len(before) + 3
    assert after[: len(before)] == before
    assert len({(row["dim"], row["lr"], row["margin"]) for row in after}) == len(after)
    finished = [float(row["valid_mrr"]) for row in after if row["state"] == "finished"]
    assert found["best"]["mrr"] == max(finished)


def test_another_search_in_the_same_folder_is_refused(graph, quick, tmp_path):
    out = tmp_path / "x"
    tune(graph, GRID, trials=2, out=out, **FIXED)
    before = (out / "study.journal").read_bytes()
    other = random_graph(seed=1, entities=20, train=100, valid=10, test=10)
    shorter = {**GRID, "lr": [0.1]}
    for graph_, space, settings, message in [
        (other, GRID, {}, "its data: fingerprint was .* and is "),
        (graph, shorter, {}, r"its space: lr was \[0.001, 0.01, 0.1\] and is \[0.1\]"),
        (graph, GRID, {"lr": 0.01}, "its space: lr was .* and is not in it"),
        (graph, GRID, {"n1": 9}, "its settings: n1 was 4 and is 9"),
        (graph, GRID, {"penalty": None}, "its settings: penalty was 0.0 and is not in it"),
    ]:
        with pytest.raises(UserError, match=f"x holds another search, {message}.*; choose another"):
            tune(graph_, space, trials=3, out=out, **{**FIXED, **settings})
    assert (out / "study.journal").read_bytes() == before
    # Where it runs is no part of a search.
    assert len(tune(graph, GRID, trials=3, out=out, **{**FIXED, "threads": 2}).trials) == 3


def test_a_line_that_was_not_written_whole_is_dropped(graph, quick, tmp_path):
    journal = tmp_path / "x" / "study.journal"
    trials = tune(graph, GRID, trials=3, out=tmp_path / "x", **FIXED).trials
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"wor')
    assert tune(graph, GRID, trials=3, out=tmp_path / "x", **FIXED).trials == trials
    with journal.open("ab") as file:
        file.write(b"what is this?\n")
    with pytest.raises(UserError, match=r"study.journal:\d+: cannot read it: "):
        tune(graph, GRID, trials=3, out=tmp_path / "x", **FIXED)


def test_a_folder_of_something_else_is_left_alone(graph, quick, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match="exists and holds no search; choose another out"):
            tune(graph, GRID, out=path, **FIXED)
    (tmp_path / "empty").mkdir()
    assert tune(graph, GRID, trials=1, out=tmp_path / "empty", **FIXED).path == tmp_path / "empty"
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere" / "x")  # an error only in mkdir
    with pytest.raises(UserError, match=r"^cannot write .*gone: File exists$"):
        tune(graph, GRID, out=tmp_path / "gone", **FIXED)


def test_a_journal_that_is_a_link_out_of_its_folder_is_left_alone(graph, quick, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "secret").write_text("one line without an end")
    (tmp_path / "x" / "study.journal").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=r"study.journal is a link that leads out of its folder"):
        tune(graph, GRID, out=tmp_path / "x", **FIXED)
    assert (tmp_path / "secret").read_text() == "one line without an end"


def test_a_folder_that_cannot_be_is_refused_before_the_data_are_loaded(tmp_path, capsys):
    (tmp_path / "file").touch()
    for path, reason in ((tmp_path / "file" / "x", "Not a directory"), ("x" * 300, "File name")):
        with pytest.raises(SystemExit) as stop:
            cli.main(["tune", "no-such-data", "--out", str(path)])
        assert stop.value.code == 2
        err = capsys.readouterr().err
        assert err.startswith(f"nscaching: cannot write {path}: {reason}")


def test_what_cannot_be_searched(graph, tmp_path):
    with pytest.raises(UserError, match="has no validation triples, which a search is judged by"):
        tune(random_graph(valid=0), GRID)
    with pytest.raises(UserError, match="validate_every 0: a search is judged by validation"):
        tune(graph, GRID, validate_every=0)
    with pytest.raises(UserError, match=r"^space: validate_every 0: a search is judged by valid"):
        tune(graph, {"validate_every": [1, 0], **GRID})
    with pytest.raises(UserError, match="trials must be at least 1, not 0"):
        tune(graph, GRID, trials=0)
    with pytest.raises(UserError, match="nothing is left to tune"):
        tune(graph, {"lr": [0.1, 0.01]}, lr=0.1)
    start = train(graph, out=tmp_path / "start", **{**FIXED, "dim": 3, "epochs": 1}).path
    with pytest.raises(UserError, match="start: its dim is 3: give dim 3, so that it is not"):
        tune(graph, GRID, pretrain=str(start))
    settings = {**FIXED, "pretrain": str(start), "dim": 3, "epochs": 1}
    assert tune(graph, GRID, trials=1, **settings).best.mrr > 0


# The command line.


def test_the_best_settings_train_as_they_are(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(words_of(data, "--trials", 3, epochs=1, seed=1))
    out, err = capsys.readouterr()
    folder = Path("tuning") / "data-transe-nscaching-my"
    assert out.endswith(
        f"\n\nin {folder}: best.toml, trials.csv, tuning.png\n"
        f"train with the best: nscaching train --config {folder}/best.toml\n"
    )
    assert out.startswith("TransE with nscaching on data: 3 trials, 3 finished\n")
    assert re.search(r"^ importance +share +value +trials +mean MRR +best MRR", out, re.M)
    assert "tuning dim 2, 3; lr 0.001, 0.01, 0.1; margin 1 to 4\n" in err
    assert len(re.findall(r"^trial \d/3  valid MRR 0\.\d{4}  dim ", err, re.M)) == 3
    assert (folder / "tuning.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in folder.iterdir()} == {
        "best.toml", "study.journal", "trials.csv", "tuning.png",
    }  # fmt: skip
    best = max(float(row["valid_mrr"]) for row in rows_of(folder) if row["state"] == "finished")
    cli.main(["train", "--config", f"{folder}/best.toml", "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["valid"]["mrr"] == best
    assert "will not come out the same" not in err


@pytest.mark.usefixtures("_no_plot")
@pytest.mark.parametrize("flags", [["--lr", "0.001"], ["--lr=0.001"]])  # it is the default too
def test_a_flag_fixes_its_setting(data, quick, tmp_path, flags, capsys):
    cli.main(words_of(data, "--trials", 3, "--json", "--out", tmp_path / "x", *flags))
    found = json.loads(capsys.readouterr().out)
    assert set(found["best"]["settings"]) == {"dim", "margin"}
    assert {config.lr for config in quick.trained} == {found["config"]["lr"]} == {0.001}


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_where_no_trial_finished_one_line_says_so(data, quick, tmp_path, more, capsys):
    quick.raises = {1: UserError("the first reason"), 2: UserError("the second reason")}
    with pytest.raises(SystemExit) as stop:
        cli.main(words_of(data, "--trials", 2, "--out", tmp_path / "x", *more))
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.endswith("\nnscaching: none of 2 trials finished; the last: the second reason\n")
    assert len(rows_of(tmp_path / "x")) == 2


@pytest.mark.usefixtures("_no_plot")
def test_literals_are_entities_where_they_are_asked_for(quick, tmp_path, capsys):
    lines = [f'<http://x/{i % 8}> <http://x/age> "{i % 5}" .\n' for i in range(40)]
    (tmp_path / "ages.nt").write_text("".join(lines))  # nothing is left without literals
    space = tmp_path / "my.toml"
    space.write_text(LINES)
    words = ["tune", str(tmp_path / "ages.nt"), "--literals", "--space", str(space)]
    cli.main([*words, "--trials", "1", "--out", str(tmp_path / "x")])
    assert read_toml(tmp_path / "x" / "best.toml")["literals"] is True


def test_flags_of_training_are_told_from_others():
    words = ["world", "--no-filter-known", "--batch_size", "3", "--seed=3", "--trials", "4"]
    assert cli._parse("tune", words).given == ("batch_size", "filter_known", "seed")
    assert cli._parse("tune", ["lr"]).given == ()


@pytest.mark.usefixtures("_no_plot")
def test_ctrl_c_says_how_to_go_on(data, quick, tmp_path, capsys):
    quick.raises = {3: KeyboardInterrupt()}
    with pytest.raises(SystemExit) as stop:
        cli.main(words_of(data, "--trials", 5, "--out", tmp_path / "x"))
    assert stop.value.code == 130
    *_, line, last = capsys.readouterr().err.splitlines()
    kept = f"2 of 5 trials are kept in {tmp_path / 'x'}"
    assert (line, last) == (f"{kept}; the same command continues there", "nscaching: stopped")
    cli.main(words_of(data, "--trials", 5, "--out", tmp_path / "x"))
    so_far = f"{tmp_path / 'x'}: trials so far: 2, asked for: 5  best 0."
    assert so_far in capsys.readouterr().err


@pytest.mark.usefixtures("_no_plot")
def test_more_trials_than_were_asked_for(data, quick, tmp_path, capsys):
    for count in (6, 2):
        cli.main(words_of(data, "--trials", count, "--out", tmp_path / "x"))
    out, err = capsys.readouterr()
    assert f"\n{tmp_path / 'x'}: trials so far: 6, asked for: 2  best 0." in err
    assert len(quick.trained) == 6
    assert out.count("6 trials, ") == 2


def test_without_optuna_one_line_says_what_to_install(data, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["tune", str(data)])
    assert stop.value.code == 2
    line = 'nscaching: tune needs optuna: pip install "nscaching[tune]"\n'
    assert capsys.readouterr() == ("", line)


def test_help_does_not_import_optuna():
    program = (
        "import contextlib, sys, nscaching.cli.main as cli, nscaching.tuning\n"
        "for words in (['--help'], ['tune', '--help']):\n"
        "    with contextlib.suppress(SystemExit): cli.main(words)\n"
        "assert 'optuna' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_plot_shows_every_kind_of_trial_and_of_hyperparameter(graph, quick, tmp_path):
    quick.raises = {9: UserError("the loss is inf in epoch 1: try a lower --lr")}
    space = {
        **GRID, "margin": {"low": 1.0, "high": 4.0},
        "temperature": {"low": 0.1, "high": 9.0, "log": True},
        "n1": {"low": 2, "high": 5}, "filter_known": [True, False], "draw": ["uniform", "top"],
    }  # fmt: skip
    settings = {name: value for name, value in FIXED.items() if name not in space}
    tuning = tune(graph, space, trials=30, **settings)
    tuning.graph.name = "$5 and $6 \\frac"
    tuning.plot(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 20_000
    assert {trial.state for trial in tuning.trials} == {"finished", "pruned", "failed"}


def test_a_trial_that_did_not_finish_is_never_the_best_so_far(graph):
    found = [("failed", 0.0), ("pruned", 0.9), ("finished", 0.2), ("pruned", 0.8)]
    trials = [Trial(i, state, {}, mrr, 1, 1, 0.0) for i, (state, mrr) in enumerate(found, 1)]
    axes = Figure().subplots()
    _course(axes, Tuning(TrainConfig(), {}, graph, trials))
    assert axes.lines[0].get_ydata().tolist() == [0.0, 0.0, 0.2, 0.2]


@pytest.mark.parametrize("waits", [True, False])
def test_trials_outside_of_the_space_are_refused(graph, quick, tmp_path, waits):
    """A stranger's journal may name code as a setting of a trial."""
    out = tmp_path / "search"
    tune(graph, GRID, trials=1, out=out, **FIXED)
    storage = JournalStorage(JournalFileBackend(str(out / "study.journal")))
    study = optuna.load_study(study_name=None, storage=storage)
    if waits:
        study.enqueue_trial({"model": "evil.py:Evil"})
    else:
        choices = {"model": optuna.distributions.CategoricalDistribution(["evil.py:Evil"])}
        params = {"model": "evil.py:Evil"}
        study.add_trial(optuna.create_trial(params=params, distributions=choices, value=1.0))
    with pytest.raises(UserError, match=r"study\.journal: trial 1 is not of this search"):
        tune(graph, GRID, trials=3, out=out, **FIXED)
