"""What people use from Python: progress, vectors, texts, and a saved run in another process."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from rich import console

from helpers import TINY, Hearing, graph_of, random_graph
from nscaching import Run, UserError, resume, train
from nscaching.cli.main import main
from nscaching.errors import Stopped
from nscaching.runs.export import load_vectors

GRAPH = random_graph()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mine"
    return train(GRAPH, out=path, **TINY | {"model": "ComplEx"})


def test_progress_is_shown_where_it_is_asked_for(capsys):
    train(GRAPH, **TINY)
    assert capsys.readouterr().err == ""
    train(GRAPH, progress=True, **TINY)
    printed = capsys.readouterr().err
    assert "TransE nscaching: epoch 2/2" in printed  # a log: there is no terminal
    with pytest.raises(UserError, match="give one of the two"):
        train(GRAPH, progress=True, listener=Hearing(), **TINY)


def test_resume_shows_progress_too(tmp_path, capsys):
    def end(record):
        raise RecursionError("enough")

    with pytest.raises(RecursionError, match="enough"):
        train(GRAPH, out=tmp_path / "run", listener=Hearing(record=end), **TINY)
    resume(tmp_path / "run", progress=True)
    assert "epoch 2/2" in capsys.readouterr().err


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_a_bar_or_lines_without_a_warning(widgets, monkeypatch):
    shown = []

    class Output:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def clear_output(self, wait):
            shown.append("cleared")

    fakes = {"IPython": {}, "IPython.display": {"display": shown.append}}
    fakes |= {"ipywidgets": {"Output": Output}} if widgets else {}
    for name, attributes in fakes.items():
        module = types.ModuleType(name)
        vars(module).update(attributes)
        module.__spec__ = types.SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(GRAPH, progress=True, **TINY)
    assert any(isinstance(each, Output) for each in shown) == widgets
    texts = [str(each.text) for each in shown if hasattr(each, "text")]
    assert any("epoch 2/2" in text for text in texts)


def test_embeddings_are_names_and_arrays(run, tmp_path):
    vectors = run.embeddings
    assert vectors.entities == GRAPH.entities
    assert vectors.relations == GRAPH.relations
    assert vectors.entity.dtype == vectors.relation.dtype == np.float32
    np.testing.assert_array_equal(vectors.entity, run.model.entity.detach().numpy())
    np.testing.assert_array_equal(vectors.relation, run.model.relation.detach().numpy())
    assert repr(vectors) == "Vectors(entities [12, 8], relations [3, 8])"
    run.export(tmp_path / "v.npz")
    np.testing.assert_array_equal(load_vectors(tmp_path / "v.npz").entity, vectors.entity)


def test_a_run_says_what_it_is(run):
    test = run.result("test")
    figures = f"test MRR {test['mrr']:.3f}, Hit@10 {test['hits@10']:.3f}"
    epochs = f"epoch {run.best_epoch} of 2"
    expected = f"Run(ComplEx with nscaching on graph, d = 4; {epochs}; {figures}; {run.path})"
    assert repr(run) == expected
    untested = train(graph_of(GRAPH.train.tolist()), **TINY)
    assert repr(untested) == "Run(TransE with nscaching on graph, d = 4; epoch 2 of 2)"


def test_a_graph_does_not_let_a_terminal_obey_a_name():
    graph = graph_of([(0, 0, 1)], labels={"e0": "\x1b[2J", "r0": "knows"})
    assert repr(graph).endswith(r"such as ('\x1b[2J', 'knows', 'e1'))")


def test_a_saved_run_is_used_in_another_process_in_three_lines(run, tmp_path):
    run.save(tmp_path / "saved")
    program = "from nscaching import Run\n"
    program += "run = Run.load('saved')\n"
    program += "print(run.predict(head='e1', relation='r2', top=3))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    whole = Run.load(tmp_path / "saved", device="cpu")
    assert done.stdout.strip() == str(whole.predict(head="e1", relation="r2", top=3))
    assert torch.equal(whole.model.entity, run.model.entity)


def test_evaluate_says_that_a_run_is_still_training(tmp_path, capsys):
    path, heard = tmp_path / "run", []

    def look(record):
        if record.get("epoch") == 2 and "split" not in record:
            main(["evaluate", str(path), "--device", "cpu"])
            heard.append(capsys.readouterr().err)

    settings = {**TINY, "epochs": 9}
    with pytest.raises(Stopped):
        train(GRAPH, out=path, listener=Hearing(record=look, stop=lambda: bool(heard)), **settings)
    note = f"note: {path} is still training: 2 of 9 epochs are trained; the parameters are those of"
    assert heard == [f"{note} epoch 1\n"]
    main(["evaluate", str(path), "--device", "cpu"])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"note: {path} was interrupted: 2 of 9 epochs are trained; ")
    assert second == f"note: to resume: nscaching train --resume {path}"
    resume(path)
    main(["evaluate", str(path), "--device", "cpu"])
    assert capsys.readouterr().err == ""
