"""Code that a run folder or a configuration file names runs only after --trust."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from helpers import TINY, random_graph
from nscaching import Run, UserError, resume, train, tune
from nscaching.cli.main import main
from nscaching.cli.verbs import VERBS
from nscaching.paper.figures import draw
from resuming import stopped

CODE = """
from pathlib import Path
from nscaching.models.translational import TransE
from nscaching.samplers.fixed import Uniform

with Path({marker!r}).open("a") as marker:
    marker.write("ran ")

class Theirs(TransE):
    pass

class Draw(Uniform):
    pass
"""
QUICK = shlex.split("--epochs 1 --dim 4 --n1 4 --n2 4 --threads 1 --device cpu")
SMALL = "dim = 4\nn1 = 4\nn2 = 4\nepochs = 1\nthreads = 1\ndevice = 'cpu'\n"
QUERY = ["--head", "e0", "--relation", "r0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Train a run that has a cache; its data have the query (e0, r0, ?)."""
    path = tmp_path_factory.mktemp("runs") / "run"
    graph = random_graph(entities=4, relations=1, train=10, valid=2, test=2)
    train(graph, out=path, **TINY)
    return path


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Work in a folder with a module of a stranger's that leaves a mark when it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    marker = tmp_path / "marker"
    (tmp_path / "theirs.py").write_text(CODE.format(marker=str(marker)))
    (tmp_path / "new.tsv").write_text("new\tr0\te1\n")
    _forget()
    yield marker
    _forget()


def _forget():
    for name in [name for name in sys.modules if name.startswith(("nscaching_file_", "theirs"))]:
        del sys.modules[name]


@pytest.fixture
def stranger(marker, finished):
    """Return a function that makes two runs whose configuration names code, one unfinished."""

    def make(setting, spec):
        config = Path(shutil.copytree(finished, "run"), "config.toml")
        lines = config.read_text().splitlines()
        named = [f'{setting} = "{spec}"' if x.startswith(f"{setting} =") else x for x in lines]
        assert named != lines
        config.write_text("\n".join(named))
        # The checkpoint knows the names too.
        stopped(Path("stopped"), 1, **{setting: spec})
        marker.unlink(missing_ok=True)
        _forget()

    return make


SPECS = {
    "relative": "theirs.py:Theirs",
    "absolute": "{folder}/theirs.py:Theirs",
    "module": "theirs:Theirs",
}

# For each verb that reads a run folder, what a user may ask of it.
READS = {
    "evaluate": [["run"], ["run", "--task", "relations"]],
    "classify": [["run"]],
    "predict": [["run", *QUERY]],
    "explain": [["run", *QUERY, "--tail", "e1"]],
    "extend": [["run", "new.tsv", "--out", "more"]],
    "neighbours": [["run", "e0"]],
    "inspect": [["run", *QUERY]],
    "export": [["run", "--to", "vectors.npz"]],
    "compare": [["run"], ["run", "run"]],
    "report": [["run", "--out", "report.html"]],
    "figures": [["cache", "run", *QUERY]],
    "train": [["--resume", "stopped"]],
}
# Verbs that read the names and triples of a run folder alone.
DATA = {"relations", "entities"}
# The verb that never ends: test_serve_guard.py has its test.
ENDLESS = {"serve"}
# Verbs whose configuration files are tests of their own, and those that read nothing.
FILES = {"tune", "reproduce"}
NOTHING = {"demo", "datasets", "presets", "audit", "auto"}


def refused(capsys, *words):
    """Return the one line by which the command line refuses."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([*words])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def test_every_verb_is_tested_here():
    assert set(READS) | DATA | ENDLESS | FILES | NOTHING == set(VERBS)


@pytest.mark.parametrize("verb", sorted(DATA))
def test_listing_names_runs_no_code_of_a_run_folder(stranger, marker, tmp_path, capsys, verb):
    stranger("model", SPECS["relative"].format(folder=tmp_path))
    main([verb, "run"])
    assert "e0" in capsys.readouterr().out or verb == "relations"
    assert not marker.exists()


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("verb", READS)
def test_no_verb_runs_the_code_of_a_run_folder(stranger, marker, tmp_path, capsys, verb, kind):
    spec = SPECS[kind].format(folder=tmp_path)
    stranger("model", spec)
    for words in READS[verb]:
        said = refused(capsys, verb, *words)
        folder = "stopped" if "stopped" in words else "run"
        assert said == (
            f"nscaching: {folder}/config.toml names code from outside the package: model = "
            f"'{spec}'; read that code, then say --trust to run it\n"
        )
        assert refused(capsys, verb, *words, "--json") == said
    assert not marker.exists()
    main([verb, *READS[verb][0], "--trust", "--json"])
    assert marker.read_text() == "ran "


@pytest.mark.parametrize("setting", ["model", "sampler", "generator"])
def test_all_settings_that_can_name_code(stranger, marker, setting):
    spec = "theirs.py:Draw" if setting == "sampler" else "theirs.py:Theirs"
    stranger(setting, spec)
    message = f"config.toml names code from outside the package: {setting} = '{spec}'"
    with pytest.raises(UserError, match=f"^run/{message}"):
        Run.load("run")
    with pytest.raises(UserError, match=f"^stopped/{message}"):
        resume("stopped")
    with pytest.raises(UserError, match=f"^run/{message}"):
        draw("convergence", "run")
    assert not marker.exists()


def test_python_trusts_by_an_argument(stranger, marker):
    stranger("model", "theirs.py:Theirs")
    assert type(Run.load("run", trust=True).model).__name__ == "Theirs"
    assert type(resume("stopped", trust=True).model).__name__ == "Theirs"
    assert draw("cache", "run", head="e0", relation="r0", trust=True).files
    assert marker.read_text() == "ran "  # once: the module is kept


@pytest.mark.parametrize(
    "text",
    [
        "model = 'theirs.py:Theirs'",
        "sampler = 'theirs:Draw'",
        "sampler = 'kbgan'\ngenerator = 'theirs.py:Theirs'",
    ],
)
def test_a_configuration_file(marker, tmp_path, capsys, text):
    (tmp_path / "their.toml").write_text(f"data = 'world'\n{SMALL}{text}\n")
    setting = text.splitlines()[-1]
    said = refused(capsys, "train", "--config", "their.toml", "--out", "new")
    message = f"nscaching: their.toml names code from outside the package: {setting}; "
    assert said.startswith(message)
    assert refused(capsys, "train", "--config=their.toml", "--dry-run").startswith(message)
    with pytest.raises(SystemExit):
        main(["train", "--config", "their.toml", "--help"])
    assert not marker.exists()
    assert not (tmp_path / "new").exists()
    main(["train", "--config", "their.toml", "--out", "new", "--trust"])
    assert marker.read_text() == "ran "


def test_a_flag_is_trust_enough(marker, tmp_path):
    (tmp_path / "their.toml").write_text(f"data = 'world'\n{SMALL}model = 'theirs.py:Theirs'\n")
    main(["train", "--config", "their.toml", "--model", "TransE", "--out", "one"])
    assert not marker.exists()
    words = ["train", "world", *QUICK, "--model", "theirs.py:Theirs"]
    main([*words, "--out", "two"])
    main(["train", "--config", "their.toml", "--model", "theirs.py:Theirs", "--out", "three"])
    main([*words, "--pretrain", "two", "--out", "four"])
    assert marker.read_text() == "ran "


@pytest.mark.parametrize("flag", ["--pretrain", "--generator-pretrain"])
def test_a_start_runs_nothing_but_what_was_asked_for(marker, tmp_path, capsys, flag):
    words = ["train", "world", *QUICK, "--model", "TransE"]
    main([*words, "--out", "first"])
    config = tmp_path / "first" / "config.toml"
    config.write_text(config.read_text().replace('"TransE"', '"theirs.py:Theirs"'))
    words += ["--sampler", "kbgan", flag, "first"]
    capsys.readouterr()
    for trusted in ([], ["--trust"]):  # another model does not fit, trusted or not
        with pytest.raises(SystemExit):
            main([*words, *trusted, "--out", "new"])
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"nscaching: {flag} ")
        assert last.endswith("first: its model: theirs.py:Theirs, here TransE")
    assert not marker.exists()
    asked = "--model" if flag == "--pretrain" else "--generator"
    main([*words, asked, "theirs.py:Theirs", "--out", "new"])
    assert marker.read_text() == "ran "


def test_a_space_of_tune(marker, tmp_path, capsys):
    (tmp_path / "space.toml").write_text("model = ['theirs.py:Theirs', 'TransE']\n")
    words = ["tune", "world", *QUICK, "--space", "space.toml", "--trials", "2", "--out", "search"]
    said = refused(capsys, *words)
    message = "space.toml names code from outside the package: model = ['theirs.py:Theirs', "
    assert said.startswith(f"nscaching: {message}")
    with pytest.raises(UserError, match=r"^space\.toml names code from outside the package"):
        tune(random_graph(), "space.toml", 2, **TINY)
    assert not marker.exists()
    main([*words, "--trust"])
    assert marker.read_text() == "ran "


def test_presets_of_reproduce(marker, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    preset = "data = 'world'\nmodel = 'TransE'\n[paper]\ndim = 4\ngenerator = 'theirs.py:Theirs'\n"
    (tmp_path / "mine" / "world-transe.toml").write_text(preset)
    words = shlex.split(
        "reproduce link-prediction --models TransE --data world --samplers kbgan --starts scratch "
        "--protocol paper --seeds 1 --epochs 1 --presets mine --out results --device cpu"
    )
    said = refused(capsys, *words)
    message = "mine/world-transe.toml names code from outside the package: generator = 'theirs.py"
    assert said.startswith(f"nscaching: {message}")
    assert not marker.exists()
    main([*words, "--trust"])
    assert marker.read_text() == "ran "


def test_the_command_to_go_on_has_the_flag(marker):
    hint = stopped(Path("mine"), 1, model="theirs.py:Theirs")
    assert hint.endswith("; to resume: nscaching train --resume mine --trust")


def test_what_train_returns_works_as_it_is(marker):
    run = train(random_graph(), **TINY | {"model": "theirs.py:Theirs"}, out="mine")
    assert run.evaluate()["mrr"] > 0
    assert run.report("page.html").is_file()
    assert run.export("vectors.npz")
    assert draw("gradients", run).files
    with pytest.raises(UserError, match="names code from outside the package"):
        Run.load("mine")
    assert Run.load("mine", trust=True).evaluate() == run.evaluate()
