"""The calibration of a run folder: kept bit for bit, of its own parameters, or damaged."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from helpers import TINY, Hearing, random_graph
from nscaching import Run, UserError, resume, train
from nscaching.cli.main import main
from nscaching.errors import Stopped
from nscaching.evaluation.calibrate import fit_calibration
from nscaching.evaluation.calibration import AnswerChances
from nscaching.runs.calibration import read_calibration, write_calibration

GRAPH = random_graph(entities=20, relations=3, train=200, valid=120, test=60)


CHANCES = {"constant": -2.0, "odds": 0.5, "log_rank": -1.0, "log_share": 0.2}
CHANCES |= {"by_relation": {"1": 0.25}, "queries": 40}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(GRAPH, out=tmp_path_factory.mktemp("runs") / "run", **TINY)


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished.path, tmp_path / "copy")


def asked(fitted, prior=None):
    scores = np.linspace(-8, 8, 50)
    relations = np.arange(50, dtype=np.int32) % 3
    return fitted.probabilities(scores, relations, prior).tolist()


def test_training_writes_what_it_would_fit_again(finished, copy):
    kept, fresh = Run.load(copy, "cpu"), Run.load(copy, "cpu")
    fresh.calibration = None
    assert set(kept.calibration.by_relation) == {0, 1, 2}
    assert asked(kept.calibration) == asked(finished.calibration) == asked(fresh.calibrated())
    assert kept.calibration.triples == 240
    assert kept.calibration.answers == finished.calibration.answers == fresh.calibration.answers
    assert set(kept.calibration.answers) == {0, 1, 2}
    assert (copy / "calibration.json").stat().st_size < 2500


def test_a_file_gives_back_every_bit(tmp_path):
    random = np.random.default_rng(0)
    scores, relations = random.normal(size=5000), random.integers(3, size=5000).astype(np.int32)
    fitted = fit_calibration(scores, random.random(5000) < 0.4, relations, 'näme "x"\n')
    odd = {2: math.pi, 0: -1e-17}
    fitted = replace(fitted, answers={2: AnswerChances(-1 / 3, 0.1, -1 / 7, 1 / 9, odd, 5)})
    write_calibration(tmp_path / "c.json", fitted, 7)
    found = read_calibration(tmp_path / "c.json", 3, 7)
    assert len(found.curve[0])
    assert asked(found, 0.3) == asked(fitted, 0.3)
    assert (found.everywhere, found.by_relation) == (fitted.everywhere, fitted.by_relation)
    assert found.answers == fitted.answers
    assert (found.prior, found.triples, found.negatives) == (
        fitted.prior, fitted.triples, fitted.negatives,
    )  # fmt: skip


def test_an_older_run_is_calibrated_on_demand_and_nothing_is_written(finished, copy, capsys):
    (copy / "calibration.json").unlink()
    before = sorted(copy.iterdir())
    run = Run.load(copy, "cpu")
    assert run.calibration is None
    ids = GRAPH.test[:5]
    assert np.array_equal(run.probabilities(ids), finished.probabilities(ids))
    main(["evaluate", str(copy), "--task", "calibration"])
    assert sorted(copy.iterdir()) == before
    main(["evaluate", str(copy), "--task", "calibration", "--write"])
    assert f"calibration: {copy / 'calibration.json'}" in capsys.readouterr().out
    assert asked(Run.load(copy, "cpu").calibration) == asked(finished.calibration)


def test_other_parameters_or_another_format_are_fitted_again(finished, copy):
    path = copy / "calibration.json"
    values = json.loads(path.read_text())
    for change in ({"epoch": values["epoch"] + 1}, {"format": 1}):
        path.write_text(json.dumps(values | {"everywhere": [9.0, 9.0]} | change))
        run = Run.load(copy, "cpu")
        assert run.calibration is None
        assert asked(run.calibrated()) == asked(finished.calibration)


@pytest.mark.parametrize(
    "change",
    [
        {"everywhere": [1.0]},
        {"everywhere": [-1.0, 0.0]},
        {"everywhere": [1.0, float("nan")]},
        {"everywhere": [float("inf"), 0.0]},
        {"everywhere": [10**400, 0]},
        {"everywhere": [True, False]},
        {"everywhere": "12"},
        {"everywhere": None},
        {"by_relation": {"3": [1.0, 0.0]}},
        {"by_relation": {"-1": [1.0, 0.0]}},
        {"by_relation": {"1e0": [1.0, 0.0]}},
        {"by_relation": {"0": {}}},
        {"by_relation": ["0"]},
        {"by_relation": 5},
        {"curve": []},
        {"curve": [[0.0], []]},
        {"curve": [[0.0, 0.0], [1.0, 2.0]]},
        {"curve": [[0.0, 1.0], [2.0, 1.0]]},
        {"curve": [[0.0, "x"], [1.0, 2.0]]},
        {"prior": 0},
        {"prior": 1.0},
        {"prior": "0.5"},
        {"triples": 0},
        {"triples": 1.5},
        {"negatives": 7},
        {"negatives": "\ud800"},
        {"answers": None},
        {"answers": {"3": CHANCES}},
        {"answers": {"0": {}}},
        {"answers": {"0": CHANCES | {"odds": -1.0}}},
        {"answers": {"0": CHANCES | {"log_rank": 0.5}}},
        {"answers": {"0": CHANCES | {"log_share": -0.5}}},
        {"answers": {"0": CHANCES | {"constant": float("nan")}}},
        {"answers": {"0": CHANCES | {"queries": 0}}},
        {"answers": {"0": CHANCES | {"by_relation": {"3": 1.0}}}},
        {"answers": {"0": CHANCES | {"by_relation": {"0": "1"}}}},
    ],
)
def test_values_that_are_no_calibration(copy, change):
    path = copy / "calibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"calibration\.json: not the calibration of this run$"):
        Run.load(copy, "cpu")


@pytest.mark.parametrize(
    "key", ["everywhere", "by_relation", "curve", "prior", "triples", "answers"]
)
def test_values_that_are_missing(copy, key):
    path = copy / "calibration.json"
    values = json.loads(path.read_text())
    del values[key]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="not the calibration of this run"):
        Run.load(copy, "cpu")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "7", '"x"', "[" * 100_000, "9" * 5000])
def test_a_damaged_file_is_one_line(copy, text):
    (copy / "calibration.json").write_text(text)
    with pytest.raises(
        UserError, match=r"calibration\.json: (cannot read it|not the cal)"
    ) as error:
        Run.load(copy, "cpu")
    assert "\n" not in str(error.value)


def test_a_resumed_run_writes_the_same(finished, tmp_path):
    path, steps = tmp_path / "run", []

    def stop():
        steps.append(1)
        return len(steps) > 20

    with pytest.raises(Stopped):
        train(GRAPH, out=path, listener=Hearing(stop=stop), **TINY)
    assert not (path / "calibration.json").exists()
    resume(path, device="cpu", threads=1)
    written = (path / "calibration.json").read_bytes()
    assert written == (finished.path / "calibration.json").read_bytes()


def test_a_run_without_validation_has_no_file(tmp_path, capsys):
    path = train(random_graph(valid=0), out=tmp_path / "run", **TINY).path
    assert not (path / "calibration.json").exists()
    assert "Probabilities</h2>" not in (path / "report.html").read_text()
    main(["predict", str(path), "--head", "e1", "--relation", "r1"])
    assert "probability" not in capsys.readouterr().out
    for words in (["--task", "calibration"], ["--task", "calibration", "--write"]):
        with pytest.raises(SystemExit) as stop:
            main(["evaluate", str(path), *words])
        assert stop.value.code == 2
        assert "probabilities need validation triples" in capsys.readouterr().err


def test_a_failure_loses_no_run(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr("nscaching.evaluation.calibrate.calibrate", fail)
    with pytest.warns(UserWarning, match=r"calibration\.json was not written: no|report"):
        run = train(GRAPH, out=tmp_path / "run", **TINY)
    assert Run.load(run.path, "cpu").calibration is None


# The command line and the report.


def test_the_command_line_says_what_python_says(finished, ask, capsys):
    found = ask("evaluate", str(finished.path), "--task", "calibration", "--prior", "0.1")
    assert found == {
        "run": str(finished.path), **finished.evaluate(task="calibration", prior=0.1)
    }  # fmt: skip
    main(["evaluate", str(finished.path), "--task", "calibration"])
    said = capsys.readouterr().out
    result = finished.evaluate(task="calibration")
    assert f"error {result['expected_calibration_error']:.4f} (15 bins" in said
    assert f"Brier score {result['brier']:.4f}" in said
    assert "60 true triples, 60 negatives made by seed 2019" in said
    assert "prior, the share of true triples: 0.500" in said
    main(["predict", str(finished.path), "--head", "e1", "--relation", "r1", "--tail", "e2"])
    (chance,) = finished.probabilities([("e1", "r1", "e2")])
    assert f"probability {chance:.3f}, score" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prior", "0.1"], "--prior goes with --task calibration only"),
        (["--write"], "--write goes with --task calibration only"),
        (["--task", "calibration", "--raw"], "--raw and --ties are of rankings"),
        (["--task", "calibration", "--prior", "1"], "--prior must be above 0 and below 1, not 1"),
    ],
)
def test_flags_that_do_not_go_together(finished, capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", str(finished.path), *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(finished, copy, capsys):
    (copy / "calibration.json").unlink()
    (copy / "calibration.json").mkdir()
    with pytest.raises(SystemExit):
        main(["evaluate", str(copy), "--task", "calibration", "--write"])
    assert "cannot write" in capsys.readouterr().err


def test_the_report_draws_them(finished):
    content = (finished.path / "report.html").read_text()
    result = finished.evaluate(task="calibration")
    assert "Probabilities</h2>" in content
    assert f"<dd>{result['brier']:.4f}</dd>" in content
    assert f"<dd>{result['expected_calibration_error']:.4f}</dd>" in content
    assert "Share of true triples by probability" in content
