"""One dataclass is the command line, the TOML file and the library's settings."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscaching.config import HINTS, TrainConfig, read_toml, write_toml
from nscaching.data.graph import Source
from nscaching.errors import UserError
from nscaching.models import MODELS
from nscaching.runs.settings import read_settings
from nscaching.samplers.objective import choose_objective
from nscaching.settings import CacheSettings, GeneratorSettings

AT_LEAST_ONE = ("dim", "epochs", "batch_size", "n2", "negatives", "tail")
AT_LEAST_ZERO = (
    "near", "validate_candidates", "lazy", "validate_every", "patience", "seed", "threads",
    "strata",
)  # fmt: skip
POSITIVE = ("lr", "temperature", "generator_lr", "adversarial", "scale")
NOT_NEGATIVE = ("adagrad_start", "margin", "penalty", "relation_weight", "entropy_bonus")
ORDER = [
    "model", "sampler", "dim", "norm", "epochs", "batch_size", "lr", "optimizer", "adagrad_start",
    "objective", "tail", "scale", "relation_weight", "reciprocal", "margin", "penalty",
    "penalty_norm", "negatives", "n1", "n2", "draw", "refresh", "temperature", "lazy",
    "refresh_side", "shared_candidates", "candidate_rows", "near", "side", "candidates",
    "cache_memory", "cache_place", "exchange", "strata",
    "generator", "generator_lr", "generator_pretrain", "entropy_bonus", "adversarial",
    "filter_known", "validate_every", "validate_candidates", "patience", "seed",
    "device", "kernels", "threads", "pretrain",
]  # fmt: skip
OPEN = ("penalty", "negatives", "cache_memory")
HUGE = pytest.param(10**400, id="too large for a float")


def values(name):
    """Make allowed values of a field."""
    hint = HINTS[name]
    if name == "cache_memory":
        return st.none() | st.builds(
            "{}{}".format, st.integers(1, 99), st.sampled_from(["GiB", "%"])
        )
    if type(None) in get_args(hint):
        whole = get_args(hint)[0] is int
        return st.none() | (st.integers(1, 1000) if whole else st.floats(1e-9, 1e9))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if hint is int:
        return st.integers(1, 1000)
    if hint is float:
        return st.floats(1e-9, 1e9)
    if hint is bool:
        return st.booleans()
    # The sampler "none" contradicts other settings.
    return st.text(st.characters(exclude_categories=["Cs"])).filter(lambda s: s.lower() != "none")


configs = st.builds(TrainConfig().changed, **{name: values(name) for name in HINTS})


def test_every_kind_of_field_is_covered():
    numbers = {*AT_LEAST_ONE, *AT_LEAST_ZERO, *POSITIVE, *NOT_NEGATIVE, "n1"}
    others = {"model", "sampler", "pretrain", "filter_known", "shared_candidates", "reciprocal"}
    others |= {"generator", "generator_pretrain", "cache_memory"}
    choices = {name for name, hint in HINTS.items() if get_origin(hint) is Literal}
    assert numbers | others | choices == set(HINTS)


def test_groups_hold_the_settings_of_the_cache_and_of_the_generator():
    config = TrainConfig(
        cache=CacheSettings(n1=3), gan=GeneratorSettings("DistMult", generator_lr=1)
    )
    assert config == TrainConfig.from_dict({"n1": 3, "generator": "DistMult", "generator_lr": 1})
    assert config == TrainConfig().changed(n1=3, generator="DistMult", generator_lr=1)
    assert isinstance(config.gan.generator_lr, float)
    assert config.changed(generator_pretrain="runs/g").cache == CacheSettings(n1=3)
    assert config.changed(generator_pretrain="runs/g").gan.generator_pretrain == "runs/g"
    with pytest.raises(UserError, match=r"^generator_lr must be a positive number, not 0\.0$"):
        TrainConfig(gan=GeneratorSettings(generator_lr=0))
    with pytest.raises(UserError, match=r"^gan must be of type GeneratorSettings, not 'DistMult'"):
        TrainConfig(gan="DistMult")
    with pytest.raises(UserError, match=r"^unknown setting 'generator_rl'; nearest: generator_lr"):
        config.changed(generator_rl=1)


def test_settings_have_the_names_and_the_order_of_the_files_so_far():
    assert list(TrainConfig().flat()) == ORDER
    assert list(TrainConfig().to_dict()) == [n for n in ORDER if n not in OPEN]


@given(configs, st.builds(Source, st.text("aä/'\"\\\n$[]"), st.text("b"), st.integers(0, 99)))
def test_a_configuration_survives_its_file(tmp_path_factory, config, source):
    path = tmp_path_factory.mktemp("c") / "config.toml"
    write_toml(path, dataclasses.asdict(source) | config.to_dict() | {"record": {"torch": "2"}})
    assert read_settings(path) == (source, config)


def test_a_file_may_hold_a_few_keys_only(tmp_path):
    path = tmp_path / "few.toml"
    path.write_text("\ufeffdim = 7\nlr = 1\n", encoding="utf-8")  # some editors begin with a mark
    source, config = read_settings(path)
    assert source == Source()
    assert config == TrainConfig(dim=7, lr=1.0)
    assert isinstance(config.lr, float)


@pytest.mark.parametrize("name", AT_LEAST_ONE)
@pytest.mark.parametrize("value", [0, -1, -(10**30)])
def test_sizes_are_at_least_one(name, value):
    with pytest.raises(UserError, match=f"^{name} must be at least 1, not {value}$"):
        TrainConfig().changed(**{name: value})
    assert TrainConfig().changed(**{name: 1}).flat()[name] == 1


@pytest.mark.parametrize("name", AT_LEAST_ZERO)
def test_counts_are_at_least_zero(name):
    with pytest.raises(UserError, match=f"^{name} must be at least 0, not -1$"):
        TrainConfig().changed(**{name: -1})
    assert TrainConfig().changed(**{name: 0}).flat()[name] == 0


def test_only_a_softmax_does_without_a_cache():
    needed = r"^n1 must be at least 1, not 0: only softmax does without a cache$"
    for objective in set(get_args(HINTS["objective"])) - {"auto", "softmax"}:
        with pytest.raises(UserError, match=needed):
            TrainConfig().changed(n1=0, objective=objective)
        assert TrainConfig().changed(n1=1, objective=objective).cache.n1 == 1
    assert TrainConfig().changed(n1=0, objective="softmax").cache.n1 == 0
    for sampler in ("nscaching", "none"):  # where the loss is chosen later
        config = TrainConfig().changed(n1=0, sampler=sampler)
        with pytest.raises(UserError, match=needed):
            choose_objective(config, MODELS.get(config.model))
    for objective in ("auto", "softmax"):
        with pytest.raises(UserError, match=r"^n1 must be at least 0, not -1$"):
            TrainConfig().changed(n1=-1, objective=objective)


@pytest.mark.parametrize("name", [*AT_LEAST_ONE, *AT_LEAST_ZERO, "n1"])
def test_whole_numbers_have_a_limit(name):
    most = 1024 if name == "threads" else 2**31 - 1
    assert TrainConfig().changed(**{name: most}).flat()[name] == most
    with pytest.raises(UserError, match=f"^{name} must be at most {most}, not {most + 1}$"):
        TrainConfig().changed(**{name: most + 1})


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [0, 0.0, -0.1, float("nan"), float("inf"), HUGE])
def test_rates_are_positive(name, value):
    with pytest.raises(UserError, match=f"^{name} must be a positive number, not"):
        TrainConfig().changed(**{name: value})


@pytest.mark.parametrize("name", NOT_NEGATIVE)
@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("inf"), HUGE])
def test_margins_and_weights_are_not_negative(name, value):
    with pytest.raises(UserError, match=f"^{name} must be zero or a positive number, not"):
        TrainConfig().changed(**{name: value})
    assert TrainConfig().changed(**{name: 0}).flat()[name] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dim", 1.0),
        ("dim", True),
        ("dim", "7"),
        ("dim", None),
        ("lr", "x"),
        ("lr", True),
        ("model", 3),
        ("model", ["TransE"]),
        ("pretrain", None),
        ("filter_known", 1),
        ("filter_known", "yes"),
    ],
)
def test_a_wrong_type_is_told(name, value):
    kind = HINTS[name].__name__
    with pytest.raises(UserError) as error:
        TrainConfig.from_dict({name: value}, "f.toml")
    assert str(error.value) == f"f.toml: {name} must be of type {kind}, not {value!r}"
    with pytest.raises(UserError, match=f"^{name} must be of type {kind}"):
        TrainConfig().changed(**{name: value})


@pytest.mark.parametrize("name", [n for n, h in HINTS.items() if get_origin(h) is Literal])
@pytest.mark.parametrize("value", ["nope", "", 0, 1.0, 3, True, None, []])
def test_a_choice_is_one_of_its_values(name, value):
    choices = ", ".join(map(str, get_args(HINTS[name])))
    with pytest.raises(UserError) as error:
        TrainConfig.from_dict({name: value}, "f.toml")
    assert str(error.value) == (
        f"unknown value of f.toml: {name}: {str(value)!r}; known: {choices}"
    )


def test_an_unknown_key_comes_with_the_nearest():
    with pytest.raises(UserError, match=r"f.toml: unknown key 'batchsize'; nearest: batch_size"):
        TrainConfig.from_dict({"batchsize": 3}, "f.toml")


def test_a_value_out_of_bounds_is_told_with_its_file():
    with pytest.raises(UserError, match=r"^f.toml: n2 must be at least 1, not 0$"):
        TrainConfig.from_dict({"n2": 0}, "f.toml")
    with pytest.raises(UserError, match=r"^f.toml: n1 must be at least 1, not 0: only softmax"):
        TrainConfig.from_dict({"n1": 0, "objective": "margin"}, "f.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dim = \n", r"cannot read it: Invalid value \(at line 1, column 7\)"),
        ("dim = 3\ndim = 4\n", "cannot read it: Cannot overwrite a value"),
        (b"model = '\xff'\n", "cannot read it: .*can't decode byte 0xff"),
        ("dim = 1" + "0" * 5000, "cannot read it: "),
        ("x = " + "[" * 9999, "cannot read it: "),
        ("data = 5\n", "data must be of type str, not 5"),
        ("labels = true\n", "labels must be of type str, not True"),
        ("split_seed = 'x'\n", "split_seed must be of type int, not 'x'"),
        ("seed = 2020-01-01\n", "seed must be of type int, not datetime"),
        ("[dim]\nx = 1\n", "dim must be of type int, not {'x': 1}"),
        ("[training]\ndim = 1\n", "unknown key 'training'"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=f"bad.toml: {message}"):
        read_settings(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match=r"gone\.toml: cannot read it: No such file or directory$"):
        read_toml(tmp_path / "gone.toml")
    with pytest.raises(UserError, match=r"cannot read it: Is a directory$"):
        read_toml(tmp_path)
