"""Presets: settings by name, shipped with the package."""

from __future__ import annotations

import json
from functools import partial

import pytest

from nscaching import TrainConfig
from nscaching.cli import main as cli
from nscaching.cli.main import main
from nscaching.config import read_toml
from nscaching.data import datasets
from nscaching.errors import UserError
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.paper.published import TABLES

TABLE = TABLES["link-prediction"]
GRID = {
    "dim": {20, 50, 100, 200},
    "lr": {1e-4, 1e-3, 1e-2, 1e-1},
    "margin": {1.0, 2.0, 3.0, 4.0},
    "penalty": {1e-3, 1e-2, 1e-1},
}


def test_there_is_one_for_each_cell_of_the_paper():
    pairs = {f"{data}-{model}".lower() for data in TABLE.data for model in TABLE.models}
    assert set(presets.names()) == pairs
    assert len(pairs) == 20


@pytest.mark.parametrize("name", presets.names())
def test_each_is_for_the_data_and_the_model_of_its_name(name):
    for variant in presets.VARIANTS:
        data, config = presets.load(name, variant)
        assert isinstance(config, TrainConfig)
        assert datasets.KNOWN[data].name == data
        assert f"{data}-{MODELS.canonical(config.model)}".lower() == name
        assert (presets.FOLDER / f"{name}.toml").read_text().startswith("# ")
    _, paper = presets.load(name, "paper")
    family = MODELS.get(paper.model).family
    for field in ("dim", "lr", "margin" if family == "translational" else "penalty"):
        value = getattr(paper, field)
        assert value in GRID[field], f"{field} {value} is not on the paper's grid"


@pytest.mark.parametrize("name", presets.names())
def test_each_holds_only_what_is_not_the_default(name):
    values = read_toml(presets.FOLDER / f"{name}.toml")
    default = TrainConfig().flat()
    assert all(value != default[key] for key, value in values["paper"].items())
    _, paper = presets.load(name, "paper")
    assert all(value != paper.flat()[key] for key, value in values["cache"].items())


@pytest.fixture
def own(tmp_path):
    """Write a preset, with more in it; return the folder."""

    def write(more=""):
        head = 'data = "world"\nmodel = "TransE"\n'
        tables = "[paper]\ndim = 8\nmargin = 2\n[cache]\nmargin = 3\n"
        (tmp_path / "world-transe.toml").write_text(head + more + tables)
        return tmp_path

    return write


def test_the_cache_table_changes_what_the_paper_table_says(own):
    expected = TrainConfig(model="TransE", dim=8, margin=2.0)
    assert presets.load("world-transe", "paper", own()) == ("world", expected)
    _, tuned = presets.load("World-TransE", folder=own())
    assert (tuned.dim, tuned.margin) == (8, 3.0)


@pytest.mark.parametrize(
    ("more", "wrong"),
    [("dim = 3\n", "unknown key 'dim'; known: data, model, cache, paper"), ("[[x", "cannot read")],
)
def test_a_wrong_file_is_named(own, more, wrong):
    with pytest.raises(UserError, match=r"world-transe\.toml") as error:
        presets.load("world-transe", "paper", own(more))
    assert wrong in str(error.value)


def test_a_wrong_setting_is_named_with_file_and_table(tmp_path):
    text = 'data = "world"\nmodel = "TransE"\n[cache]\nmargn = 3\n'
    (tmp_path / "world-transe.toml").write_text(text)
    with pytest.raises(UserError, match=r"world-transe\.toml \[cache\]: unknown key 'margn'"):
        presets.load("world-transe", folder=tmp_path)


# On the command line.


def test_train_takes_data_and_settings_and_flags_win():
    name = "fb15k237-transe"
    for words, variant in (
        (["--preset", name], "cache"),
        ([f"--preset={name}:paper"], "paper"),
        (["--preset", f"{name}:cache"], "cache"),
    ):
        parsed = cli._parse("train", words)
        assert (parsed.where, parsed.settings) == presets.load(name, variant)
    parsed = cli._parse("train", ["world", "--preset", name, "--dim", "7", "--seed", "3"])
    assert (parsed.where, parsed.settings.dim, parsed.settings.seed) == ("world", 7, 3)
    assert parsed.settings.margin == presets.load(name)[1].margin


ONE_FILE = "--config and --preset each say all settings: give one of them, once"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--preset", "fb15k-rescal"], "unknown preset 'fb15k-rescal'; known: fb15k-complex, "),
        (["--preset", "wn18-transe:x"], "unknown variant of the preset wn18-transe: 'x'; known:"),
        (["--preset", "wn18-transe", "--config", "x.toml"], ONE_FILE),
        (["--preset", "wn18-transe", "--preset=x"], ONE_FILE),
        (["--config", "a.toml", "--config", "b.toml"], ONE_FILE),
    ],
)
def test_what_is_wrong_is_one_line(capsys, words, wrong):
    with pytest.raises(SystemExit) as stop:
        main(["train", *words])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert wrong in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("preset", "more", "note"),
    [
        ("wn18-transe", [], "TransE on wn18, not for TransE on world"),
        ("wn18-transe:paper", ["--model", "DistMult"], "TransE on wn18, not for DistMult on world"),
        ("world-transe", ["--model", "DistMult"], "TransE on world, not for DistMult on world"),
        ("world-transe", ["--model", "transe"], ""),
    ],
)
def test_other_data_or_another_model_are_noted(own, monkeypatch, capsys, preset, more, note):
    if preset.startswith("world"):
        monkeypatch.setattr(presets, "load", partial(presets.load, folder=own()))
    main(["train", "world", "--preset", preset, "--dim", "4", *more, "--dry-run"])
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes == ([f"note: --preset {preset} was tuned for {note}"] if note else [])


def test_the_list_shows_both_variants(capsys):
    main(["presets", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert list(found) == presets.names()
    _, config = presets.load("wn18-transe", "paper")
    assert found["wn18-transe"]["data"] == "wn18"
    assert found["wn18-transe"]["paper"]["margin"] == config.margin
    assert "model" not in found["wn18-transe"]["paper"]
    main(["presets"])
    out = capsys.readouterr().out
    assert all(name in out for name in presets.names())
    assert f"--margin {config.margin}" in out
