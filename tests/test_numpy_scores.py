"""Scores by NumPy against those of PyTorch, and a run that is asked without PyTorch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from helpers import TINY, new_model, random_graph
from nscaching import Run, TrainConfig, UserError, files, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation import numpy_scores
from nscaching.evaluation.numpy_scores import TWINS
from nscaching.evaluation.predict import TorchScores
from nscaching.models import MODELS, Form
from nscaching.runs.quick import open_quickly

GRAPH = random_graph(entities=11, relations=3, train=60)


def test_every_model_of_the_two_forms_has_a_twin():
    forms = {name: MODELS.get(name).form for name in MODELS.names()}
    assert {n for n, form in forms.items() if form in (Form.DOT, Form.DISTANCE)} == set(TWINS)


def both_scores(name, dim, norm, reciprocal=False):
    model = new_model(name, 11, 3 * (1 + reciprocal), dim, norm, seed=dim)
    model.reciprocal = reciprocal
    config = TrainConfig(model=name, dim=dim, norm=norm, objective="1vsall", sampler="none")
    config = config.changed(reciprocal=reciprocal)
    tables = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    return TorchScores(model), numpy_scores.numpy_scores(config, GRAPH, tables)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("dim", [1, 5, 8])
@pytest.mark.parametrize("name", TWINS)
def test_twins_score_alike(name, dim, norm, reciprocal, monkeypatch):
    monkeypatch.setattr(numpy_scores, "BLOCK", 100)  # few rows at once
    expected, found = both_scores(name, dim, norm, reciprocal)
    first, second = np.random.default_rng(dim).integers(11, size=(2, 20))
    relation = np.arange(20) % 3
    for side in Side:
        np.testing.assert_allclose(
            found.of_entities(side, first, relation),
            expected.of_entities(side, first, relation),
            rtol=1e-4,
            atol=1e-4,
        )
    np.testing.assert_allclose(
        found.of_relations(first, second),
        expected.of_relations(first, second),
        rtol=1e-4,
        atol=1e-4,
    )


def test_what_does_not_fit_is_left_to_pytorch():
    model = new_model("TransM", 11, 3, dim=4)
    tables = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    config = TrainConfig(model="TransM", dim=4)
    assert numpy_scores.numpy_scores(config, GRAPH, tables) is not None
    for wrong in (
        {**tables, "entity": tables["entity"][:5]},
        {**tables, "relation": tables["relation"].astype(np.float64)},
        {**tables, "more": tables["weight"]},
        {key: table for key, table in tables.items() if key != "weight"},
    ):
        assert numpy_scores.numpy_scores(config, GRAPH, wrong) is None
    for other in ("TransH", "TransD", "TransR", "ManifoldE", "my.module:Model"):
        assert numpy_scores.numpy_scores(config.changed(model=other), GRAPH, tables) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "quick"
    train(GRAPH, out=path, **TINY | {"model": "ComplEx"})
    return path


@pytest.mark.parametrize("question", [("e1", "r1", None), (None, "r1", "e2"), ("e1", None, "e2")])
def test_a_quick_run_answers_as_the_whole_one(folder, question):
    quick, whole = open_quickly(folder), Run.load(folder, device="cpu")
    found, expected = (run.predict(*question, top=20, known="mark") for run in (quick, whole))
    for figure in ("score", "probability"):
        mine = [row.pop(figure) for row in found]
        assert mine == pytest.approx([row.pop(figure) for row in expected], abs=1e-5)
    assert found == expected


def test_predict_needs_no_pytorch(folder, capsys):
    words = ["predict", str(folder), "--head", "e1", "--relation", "r1", "--json"]
    main(words)
    expected = json.loads(capsys.readouterr().out)
    program = "import sys; from nscaching.cli.main import main; main(sys.argv[1:]); "
    program += "assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


def test_a_run_without_its_calibration_predicts_the_same_probabilities(folder, tmp_path, ask):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "calibration.json").unlink()
    assert open_quickly(copy) is None
    answers = []
    for path in (folder, copy):
        answers.append(ask("predict", str(path), "--head", "e1", "--relation", "r1")["answers"])
    expected, found = ([row["probability"] for row in rows] for rows in answers)
    assert found == pytest.approx(expected, abs=1e-5)


def test_mapped_arrays_are_the_tensors_of_the_file(tmp_path):
    kinds = [torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8]
    tensors = {f"t{i}": (torch.randn(3, 2) * 9).to(kind) for i, kind in enumerate(kinds)}
    tensors |= {"bool": torch.tensor([True, False]), "none": torch.empty(0, 4)}
    files.save_tensors(tmp_path / "a", tensors, {"epoch": "7"})
    arrays, metadata = files.map_arrays(tmp_path / "a")
    assert (arrays.keys(), metadata) == (tensors.keys(), {"epoch": "7"})
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy(), strict=True)
    assert files.map_arrays(tmp_path / "a")[0]["t1"].base is not None  # a view, not a copy
    files.save_tensors(tmp_path / "empty", {})
    assert files.map_arrays(tmp_path / "empty") == ({}, {})


def test_a_damaged_file_is_one_line(tmp_path):
    files.save_tensors(tmp_path / "whole", {"a": torch.ones(50)})
    data = (tmp_path / "whole").read_bytes()
    bfloat16 = tmp_path / "bfloat16"
    files.save_tensors(bfloat16, {"a": torch.ones(4, dtype=torch.bfloat16)})
    for number, damaged in enumerate([b"", data[:-1], b"\xff" * 80, data.replace(b"50", b"90")]):
        (tmp_path / str(number)).write_bytes(damaged)
    for path in (*(tmp_path / str(number) for number in range(4)), bfloat16, tmp_path / "none"):
        with pytest.raises(UserError, match=f"{path}: cannot read it"):
            files.map_arrays(path)
