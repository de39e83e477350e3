"""What a search tries, by name or from a file, and what mattered in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution as Choices
from optuna.distributions import FloatDistribution, IntDistribution

from helpers import random_graph
from nscaching import TrainConfig, UserError
from nscaching.tuning.result import Trial, Tuning
from nscaching.tuning.space import make_space, size


def space_of(text, tmp_path, **settings):
    path = tmp_path / "space.toml"
    path.write_text(text, encoding="utf-8")
    return make_space(str(path), TrainConfig.from_dict(settings))


@pytest.mark.parametrize(
    ("model", "sampler", "last"),
    [
        ("TransE", "nscaching", {"margin": Choices((1.0, 2.0, 3.0, 4.0, 8.0))}),
        ("ComplEx", "bernoulli", {"penalty": Choices((0.001, 0.01, 0.1))}),
        ("TransE", "none", {}),  # softmax over all entities: no margin
    ],
)
def test_the_grid_of_the_paper(model, sampler, last):
    assert make_space("paper", TrainConfig(model=model, sampler=sampler)) == {
        "dim": Choices((20, 50, 100, 200)), "lr": Choices((1e-4, 1e-3, 1e-2, 1e-1)), **last,
    }  # fmt: skip


@pytest.mark.parametrize("model", ["TransD", "DistMult"])
@pytest.mark.parametrize("sampler", ["nscaching", "kbgan", "igan", "self-adversarial", "none"])
def test_the_wide_space_is_one_of_possible_settings(model, sampler):
    config = TrainConfig(model=model, sampler=sampler)
    space = make_space("wide", config)
    assert ("penalty" in space) == (model == "DistMult")
    assert ("n2" in space) == (sampler == "nscaching")
    for name, part in space.items():
        values = part.choices if isinstance(part, Choices) else (part.low, part.high)
        for value in values:
            TrainConfig.from_dict({**config.to_dict(), name: value})
    assert make_space("paper", config).keys() <= space.keys()


def test_a_file_has_choices_and_ranges_of_any_setting(tmp_path):
    text = (
        "lr = [1, 0.1]\nbatch-size = [64, 128]\nmodel = ['transe', 'TransD']\n"
        "margin = {low = 1, high = 12}\nn1 = {low = 2, high = 90, log = true}\n"
        "penalty = {low = 0.001, high = 1}\nfilter_known = [true, false]\n"
    )
    space = space_of(text, tmp_path)
    assert space == {
        "lr": Choices((1.0, 0.1)),
        "batch_size": Choices((64, 128)),
        "model": Choices(("TransE", "TransD")),
        "margin": FloatDistribution(1.0, 12.0),
        "n1": IntDistribution(2, 90, log=True),
        "penalty": FloatDistribution(0.001, 1.0),
        "filter_known": Choices((True, False)),
    }
    assert [size(part) for part in space.values()] == [2, 2, 2, np.inf, 89, np.inf, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lrr = [1]", "unknown key 'lrr'; nearest: lr"),
        ("", "it names no hyperparameter to tune, such as lr = \\[0.001, 0.01\\]"),
        ("lr = 0.1", "lr must be a list of choices or {low = …, high = …, log = true}, not 0.1"),
        ("lr = []", "lr must be a list of choices or .*, not \\[\\]"),
        ("lr = [0.1, 'high']", "lr must be of type float, not 'high'"),
        ("lr = [0.1, -1]", "lr must be a positive number, not -1.0"),
        ("lr = [1, 1.0]", "lr: \\[1, 1.0\\] holds a value twice"),
        ("dim = [0.5]", "dim must be of type int, not 0.5"),
        ("norm = [1, 3]", "unknown value of .*norm: '3'; known: 1, 2"),
        ("model = ['TransX']", "unknown model 'TransX'; known: ANALOGY, "),
        ("lr = {low = 0.1}", "lr must be a list of choices or .*, not {'low': 0.1}"),
        ("lr = {low = 0.1, high = 0.01}", "lr: low must be below high, not 0.1 and 0.01"),
        ("lr = {low = 0, high = 1}", "lr must be a positive number, not 0.0"),
        ("margin = {low = 0, high = 1, log = true}", "margin: low must be above zero where log"),
        ("lr = {low = 0.1, high = 1, log = 1}", "lr.log must be of type bool, not 1"),
        ("lr = {low = 0.1, high = 1, step = 1}", "lr must be a list of choices or .*'step': 1}"),
        ("norm = {low = 1, high = 2}", "norm knows no range, .*: give a list of choices"),
        ("draw = {low = 1, high = 2}", "draw knows no range, .*: give a list of choices"),
        ("n1 = [3]\nn-1 = [4]", "unknown key 'n-1'"),
        ("batch_size = [3]\nbatch-size = [4]", "batch-size is given twice"),
        ("lr = [", "cannot read it: "),
        ("validate_every = [0, 1]", "validate_every 0: a search is judged by validation"),
        ("validate-every = {low = 0, high = 9}", "validate_every 0: a search is judged by"),
        ("pretrain = ['a', 'b']", "pretrain is not tuned: give pretrain, the same for all"),
        (
            "generator-pretrain = ['a']",
            "generator_pretrain is not tuned: give generator_pretrain",
        ),
    ],
)
def test_errors_name_the_file_the_key_and_the_value(text, message, tmp_path):
    with pytest.raises(UserError, match=f"(space.toml: |^){message}"):
        space_of(text, tmp_path)


def test_an_unknown_space_and_a_file_that_is_not_there():
    with pytest.raises(UserError, match="unknown space 'papers'; known: paper, wide, or a file"):
        make_space("papers", TrainConfig())
    with pytest.raises(UserError, match=r"no.toml: cannot read it: No such file"):
        make_space("no.toml", TrainConfig())


# What mattered.

GRID = {
    "lr": Choices((0.1, 0.01, 0.001)),
    "n1": IntDistribution(1, 9),
    "margin": FloatDistribution(0.1, 10.0, log=True),
}


def trial(number, mrr, **settings):
    return Trial(number, "finished", settings, mrr, 1, 1, 1.0)


def tuned(trials):
    return Tuning(TrainConfig(), GRID, random_graph(), trials)


def test_what_has_no_effect_has_no_importance_even_where_it_was_tried_with_what_has():
    random = np.random.default_rng(0)
    trials = []
    for i in range(40):
        lr = GRID["lr"].choices[min(i // 8, 2)]
        margin = 10.0 ** random.uniform(-1, 0) if lr == 0.1 else 10.0 ** random.uniform(0, 1)
        n1 = int(random.integers(1, 10))
        mrr = {0.1: 0.1, 0.01: 0.2, 0.001: 0.4}[lr] + 0.01 * n1
        trials.append(trial(i, mrr, lr=lr, n1=n1, margin=margin))
    shares = tuned(trials).importance()
    assert list(shares)[:2] == ["lr", "n1"]  # the largest first
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["lr"] > 0.8
    assert shares["margin"] < 0.05


def test_too_few_or_equal_trials_have_no_importance():
    trials = [trial(i, 0.1 * i, lr=0.1, n1=i, margin=1.0) for i in range(1, 9)]
    assert tuned(trials[:7]).importance() == {}
    assert next(iter(tuned(trials).importance())) == "n1"
    assert tuned([trial(1, 0.5, lr=0.1, n1=1, margin=1.0)] * 20).importance() == {}


def test_marginals_of_choices_and_of_pieces_of_a_range():
    points = itertools.product((0.1, 0.01), (1, 9), (0.1, 10.0))
    trials = [
        trial(i, 0.1 * i, lr=lr, n1=n1, margin=margin)
        for i, (lr, n1, margin) in enumerate(points, 1)
    ]
    found = tuned(trials).marginals()
    assert [tuple(m.values()) for m in found["lr"]] == [
        ("0.1", 4, pytest.approx(0.25), 0.4),
        ("0.01", 4, pytest.approx(0.65), 0.8),
    ]  # 0.001 was not tried
    assert [(m["value"], m["trials"]) for m in found["n1"]] == [("1 to 3", 4), ("7 to 9", 4)]
    assert [m["value"] for m in found["margin"]] == ["0.1 to 0.316", "3.16 to 10"]
