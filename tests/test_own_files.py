"""Models and samplers from files of the user's, and the page that says how."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from helpers import TINY, random_graph
from nscaching import Listener, Run, UserError, train
from nscaching.cli.main import main
from nscaching.models import MODELS
from nscaching.samplers import SAMPLERS, Sampler

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
QUICK = shlex.split("--epochs 1 --dim 4 --threads 1 --validate-every 0 --batch-size 4096")

MODEL = """
from dataclasses import dataclass
from nscaching.models.bilinear import DistMult

@dataclass
class Thing:  # dataclasses look into sys.modules
    x: "int" = 1

class Mine(DistMult):
    number = {number}

class Half:
    pass
"""
SAMPLER = """
from nscaching.samplers import Sampler
from nscaching.samplers.fixed import Uniform

class Mine(Uniform):
    pass

class Unfinished(Sampler):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, and forget the modules of files afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("nscaching_file_")]:
        del sys.modules[name]


# The page.


def test_the_page_runs_as_it_stands(folder, ask, capsys):
    files = re.findall(r"^`(\w+\.py)`:.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["my_model.py", "my_sampler.py"]
    for name, code in files:
        (folder / name).write_text(code, encoding="utf-8")
    commands = re.findall(r"^    nscaching (?!:)(\w+ .*)$", PAGE, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "train", "evaluate", "predict", "train", "evaluate",
    ]  # fmt: skip
    for command in commands:
        words = shlex.split(command)
        if words[0] == "train":
            words += ["--dim", "8", "--threads", "1", "--batch-size", "4096", "--no-reciprocal"]
        assert ask(*words)
    crossed = Run.load("runs/crossed", trust=True)
    assert crossed.config.model == "my_model.py:Crossed"
    assert Run.load("runs/by-degree", trust=True).config.sampler == "my_sampler.py:ByDegree"
    # The two ways of the page to write the score agree.
    everyone = torch.arange(len(crossed.graph.entities))
    head, relation = torch.tensor([3]), torch.tensor([2])
    for side, ids in (("tail", (head, relation, everyone)), ("head", (everyone, relation, head))):
        (which,) = [s for s in crossed.graph.filter_index if s.value == side]
        scores = crossed.model.score_all(which, head, relation)[0]
        assert torch.allclose(scores, crossed.model.score(*ids), atol=1e-6)
    # And the messages of the page are those that come.
    with pytest.raises(SystemExit):
        main(["evaluate", "runs/crossed"])
    assert f"    {capsys.readouterr().err}" in PAGE
    text = (folder / "my_model.py").read_text(encoding="utf-8")
    (folder / "my_model.py").write_text(text.replace("from torch", "from trch"), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["evaluate", "runs/crossed", "--trust"])
    assert f"    {capsys.readouterr().err}" in PAGE


def test_the_listener_of_the_page(capsys):
    (code,) = re.findall(r"^## A listener.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(code.replace("epochs=2,", "epochs=2, dim=8, threads=1, batch_size=4096,"), names)
    heard = names["run"].history  # type: ignore[attr-defined]
    valid = [f"epoch {r['epoch']}: MRR {r['mrr']:.4f}" for r in heard if r.get("split") == "valid"]
    assert capsys.readouterr().out.splitlines() == valid
    assert len(valid) == 2
    falling = names["Validations"]()  # type: ignore[operator]
    for mrr, stops in ((0.2, False), (0.3, False), (0.1, True)):
        falling.record({"split": "valid", "epoch": 1, "mrr": mrr})
        assert falling.stop() is stops
    table = re.findall(r"^\| `(\w+)\(.*?\)` \|", PAGE, re.MULTILINE)
    assert set(table) == {name for name in vars(Listener) if not name.startswith("_")}
    attributes = dict(re.findall(r"^\| `(\w+)` \| (True|False) \|", PAGE, re.MULTILINE))
    assert attributes == {name: str(getattr(Sampler, name)) for name in attributes}
    assert {"has_negatives", "has_weights", "has_generator", "has_cache"} < set(attributes)


# As a user may do it.


def test_a_run_with_files_loads_again(folder, ask, capsys):
    (folder / "here").mkdir()
    (folder / "here" / "my model.py").write_text(MODEL.format(number=1))
    (folder / "mine.py").write_text(SAMPLER)
    model, sampler = "here/my model.py:Mine", f"{folder}/mine.py:Mine"
    words = ["--model", model, "--sampler", sampler, *QUICK, "--out", "run"]
    found = ask("train", "world", *words)
    assert (found["model"], found["sampler"]) == (model, sampler)
    assert ask("evaluate", "run", "--trust")["mrr"] == found["test"]["mrr"]
    question = ["--head", "Portugal", "--relation", "speaks"]
    assert ask("predict", "run", "--trust", *question)["answers"]
    again = Run.load("run", trust=True)
    assert (again.config.model, again.config.sampler) == (model, sampler)
    assert type(again.model).number == 1
    found = ask("train", "--config", "run/config.toml", "--trust")
    assert found["run"] == "runs/world-mine-mine-seed0"
    # The sampler is not asked for any more, the model is.
    (folder / "mine.py").unlink()
    Run.load("run", trust=True)
    (folder / "here" / "my model.py").unlink()
    message = f"cannot load model '{model}': cannot read the file here/my model.py (seen from"
    with pytest.raises(UserError, match=re.escape(message)):
        Run.load("run", trust=True)
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "run", "--trust"])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_file_in_python(folder):
    (folder / "mine.py").write_text(MODEL.format(number=1))
    run = train(random_graph(), **TINY | {"model": "mine.py:Mine"}, out="run")
    loaded = Run.load("run", trust=True)
    assert type(loaded.model) is type(run.model)
    assert torch.equal(loaded.model.entity, run.model.entity)


def test_a_file_is_run_once_until_it_changes(folder, monkeypatch):
    file = folder / "mine.py"
    file.write_text(MODEL.format(number=1))
    first = MODELS.get("mine.py:Mine")
    assert sys.modules[first.__module__].Mine is first
    assert MODELS.get("./mine.py:Mine") is MODELS.get(f"{file}:Mine") is first
    file.write_text(MODEL.format(number=2))  # in the same second, and as long
    second = MODELS.get("mine.py:Mine")
    assert (first.number, second.number) == (1, 2)
    assert second.__module__ == first.__module__
    monkeypatch.setenv("HOME", str(folder))
    assert MODELS.get("~/mine.py:Mine") is second


def test_files_of_one_name_do_not_meet(folder):
    for number in (1, 2):
        (folder / str(number)).mkdir()
        (folder / str(number) / "mine.py").write_text(MODEL.format(number=number))
    assert [MODELS.get(f"{number}/mine.py:Mine").number for number in (1, 2)] == [1, 2]
    assert not list(folder.rglob("__pycache__"))  # nothing is left beside the user's files


@pytest.mark.parametrize(
    ("registry", "text", "spec", "message"),
    [
        (MODELS, "def f(:\n", "x.py:X", "cannot load model 'x.py:X': x.py, line 1: invalid syntax"),
        (MODELS, "\n\n1 / 0\n", "x.py:X", "x.py, line 3: ZeroDivisionError: division by zero"),
        (MODELS, "def f():\n  1 / 0\nf()", "x.py:X", "x.py, line 2: ZeroDivisionError"),
        (MODELS, "\nimport no_such", "x.py:X", "x.py, line 2: ModuleNotFoundError: No module nam"),
        (MODELS, "\nimport json; json.loads('')", "x.py:X", "x.py, line 2: JSONDecodeError"),
        (MODELS, "raise SystemExit(3)", "x.py:X", "x.py, line 1: SystemExit: 3"),
        (MODELS, "\0", "x.py:X", "x.py"),
        (MODELS, "x = 'é'".encode("latin-1"), "x.py:X", "x.py.* SyntaxError|x.py, line 1"),
        (MODELS, "X = 3", "x.py:Y", "x.py defines no 'Y'"),
        (MODELS, "X = 3", "x.py:", "x.py defines no ''"),
        (MODELS, "X = 3", "x.py:X", "'x.py:X' is not a complete subclass of Model$"),
        (
            MODELS,
            MODEL.format(number=1),
            "x.py:Half",
            "'x.py:Half' is not a complete subclass of Model$",
        ),
        (SAMPLERS, SAMPLER, "x.py:Unfinished", "complete subclass of Sampler: it lacks negatives$"),
        (SAMPLERS, MODEL.format(number=1), "x.py:Mine", "not a complete subclass of Sampler$"),
        (SAMPLERS, "", "gone/x.py:X", "cannot load sampler .*cannot read the file gone/x.py"),
        (SAMPLERS, "", "a:b/c.py:X", "cannot read the file a:b/c.py"),
        (SAMPLERS, "", ".py:X", "cannot load sampler .*cannot read the file .py"),
    ],
)
def test_a_file_that_cannot_be_used(folder, registry, text, spec, message):
    (folder / "x.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as raised:
        registry.get(spec)
    assert "\n" not in str(raised.value)
    if "complete" not in message and "defines" not in message:
        assert not [name for name in sys.modules if name.startswith("nscaching_file_")]
