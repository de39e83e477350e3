"""Presets: settings by name, shipped with the package."""

from __future__ import annotations

from functools import partial

import pytest

from helpers import random_graph
from nscaching import TrainConfig
from nscaching.cli import main as cli
from nscaching.cli.main import main
from nscaching.config import read_toml
from nscaching.data import datasets
from nscaching.errors import UserError
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.paper.published import TABLES
from nscaching.training.trainer import Trainer

TABLE = TABLES["link-prediction"]
GRID = {
    "dim": {20, 50, 100, 200},
    "lr": {1e-4, 1e-3, 1e-2, 1e-1},
    "margin": {1.0, 2.0, 3.0, 4.0},
    "penalty": {1e-3, 1e-2, 1e-1},
}
TABLES_OF = {name: read_toml(presets.FOLDER / f"{name}.toml") for name in presets.names()}
WITH_PAPER = [name for name in TABLES_OF if "paper" in presets.variants(name)]
WITH_BEST = [name for name in TABLES_OF if "best" in presets.variants(name)]


def test_there_is_one_for_each_cell_of_the_paper():
    pairs = {f"{data}-{model}".lower() for data in TABLE.data for model in TABLE.models}
    assert set(WITH_PAPER) == pairs
    assert len(pairs) == 20
    for name in WITH_PAPER:
        assert {"paper", "cache"} <= set(TABLES_OF[name])


def test_best_is_for_these_models():
    models = ("TransE", "DistMult", "ComplEx", "RotatE")
    assert set(WITH_BEST) == {f"{d}-{m}".lower() for d in TABLE.data for m in models}


@pytest.mark.parametrize("name", presets.names())
def test_each_is_for_the_data_and_the_model_of_its_name(name):
    for variant in presets.variants(name):
        data, config = presets.load(name, variant)
        assert isinstance(config, TrainConfig)
        assert datasets.KNOWN[data].name == data
        assert f"{data}-{MODELS.canonical(config.model)}".lower() == name
        assert (presets.FOLDER / f"{name}.toml").read_text().startswith("# ")


@pytest.mark.parametrize("name", WITH_PAPER)
def test_the_paper_table_is_on_the_papers_grid(name):
    _, paper = presets.load(name, "paper")
    family = MODELS.get(paper.model).family
    for field in ("dim", "lr", "margin" if family == "translational" else "penalty"):
        value = getattr(paper, field)
        assert value in GRID[field], f"{field} {value} is not on the paper's grid"


@pytest.mark.parametrize("name", presets.names())
def test_each_holds_only_what_is_not_the_default(name):
    default = TrainConfig().flat()
    for variant in set(presets.variants(name)) - {"cache"}:
        assert all(value != default[key] for key, value in TABLES_OF[name][variant].items())
    if "cache" in TABLES_OF[name]:
        _, paper = presets.load(name, "paper")
        assert all(value != paper.flat()[key] for key, value in TABLES_OF[name]["cache"].items())


@pytest.mark.parametrize("name", WITH_BEST)
def test_best_is_the_softmax_over_cached_entities_and_can_train(name):
    _, config = presets.load(name, "best")
    assert (config.sampler, config.objective, config.cache.n1) == ("nscaching", "softmax", 64)
    assert config.penalty_norm == ("n3" if MODELS.get(config.model).family == "semantic" else "l2")
    small = config.changed(dim=4, epochs=1, tail=8, n1=4, kernels="reference", device="cpu")
    Trainer(random_graph(entities=12, train=40), small).epoch(1)


PAPER_AND_CACHE = "[paper]\ndim = 8\nmargin = 2\n[cache]\nmargin = 3\n"
BEST = "[best]\nmargin = 4\n"


@pytest.fixture
def own(tmp_path):
    """Write a preset, with more in it; return the folder."""

    def write(more="", tables=PAPER_AND_CACHE):
        head = 'data = "world"\nmodel = "TransE"\n'
        (tmp_path / "world-transe.toml").write_text(head + more + tables)
        return tmp_path

    return write


def test_the_cache_table_changes_what_the_paper_table_says(own):
    expected = TrainConfig(model="TransE", dim=8, margin=2.0)
    assert presets.load("world-transe", "paper", own()) == ("world", expected)
    _, tuned = presets.load("World-TransE", folder=own())
    assert (tuned.dim, tuned.margin) == (8, 3.0)


def test_the_best_table_stands_alone(own):
    folder = own(tables=PAPER_AND_CACHE + BEST)
    expected = TrainConfig(model="TransE", margin=4.0)
    assert presets.load("world-transe", "best", folder) == ("world", expected)
    assert presets.load("world-transe", folder=folder)[1].margin == 3.0


@pytest.mark.parametrize(
    ("tables", "has"),
    [
        ("", ["cache", "paper"]),
        ("[paper]\ndim = 8\n", ["cache", "paper"]),
        (PAPER_AND_CACHE, ["cache", "paper"]),
        (PAPER_AND_CACHE + BEST, ["cache", "paper", "best"]),
        (BEST, ["best"]),
    ],
)
def test_a_plain_name_is_the_first_variant_that_there_is(own, tables, has):
    folder = own(tables=tables)
    assert presets.variants("world-transe", folder) == has
    plain = presets.load("world-transe", folder=folder)
    assert plain == presets.load("world-transe", has[0], folder)
    for variant in set(presets.VARIANTS) - set(has):
        wrong = f"unknown variant of the preset world-transe: '{variant}'; known: {', '.join(has)}$"
        with pytest.raises(UserError, match=wrong):
            presets.load("world-transe", variant, folder)


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("dim = 3\n", "unknown key 'dim'; known: data, model, cache, paper, best"),
        ("[[x", "cannot read"),
    ],
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
        (["--preset", f"{name}:best"], "best"),
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
        (["--preset", "fb15k-rescal"], "unknown preset 'fb15k-rescal'; nearest: fb15k-"),
        (["--preset", "wn18-transe:x"], "'x'; known: cache, paper, best\n"),
        (["--preset", "wn18-transe:"], "''; known: cache, paper, best\n"),
        (["--preset", "wn18-transh:best"], "wn18-transh: 'best'; known: cache, paper\n"),
        (["--preset", "wn18-rotate:cache"], "wn18-rotate: 'cache'; known: best\n"),
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
        ("wn18-rotate", ["--model", "TransE"], "RotatE on wn18, not for TransE on world"),
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


def test_the_list_shows_all_variants(ask, capsys):
    found = ask("presets")
    assert list(found) == presets.names()
    _, config = presets.load("wn18-transe", "paper")
    assert found["wn18-transe"]["data"] == "wn18"
    assert found["wn18-transe"]["paper"]["margin"] == config.margin
    assert "model" not in found["wn18-transe"]["paper"]
    assert list(found["wn18-transe"]) == ["data", "model", "cache", "paper", "best"]
    assert list(found["wn18-rotate"]) == ["data", "model", "best"]
    main(["presets"])
    out = capsys.readouterr().out
    shown = [line.split()[0] for line in out.splitlines()]
    every = [f"{name}:{variant}" for name in found for variant in presets.variants(name)]
    assert [name for name in shown if ":" in name] == every
    assert f"--margin {config.margin}" in out
    assert "--reciprocal --penalty 0.0 " in out
