"""The space of a search: for each hyperparameter a list of choices, or a range."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from nscaching.config import HINTS, TrainConfig, check_type, read_toml
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.models import MODELS
from nscaching.registry import refuse_outside_code
from nscaching.samplers import SAMPLERS
from nscaching.training.objective import choose_objective

Part = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Part]
"""Choices or a range, by the name of the hyperparameter."""

FLAGS_ONLY = ("pretrain", "generator_pretrain")  # checked, and made absolute, once

# The named spaces, in the form of a TOML file. Models without a margin, penalty or norm that
# could matter leave these out.
NAMED: dict[str, dict[str, Any]] = {
    "paper": {
        "dim": [20, 50, 100, 200],
        "lr": [1e-4, 1e-3, 1e-2, 1e-1],
        "margin": [1.0, 2.0, 3.0, 4.0],
        "penalty": [1e-3, 1e-2, 1e-1],
    },
    "wide": {
        "dim": [50, 100, 200, 400],
        "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "batch_size": [128, 256, 512, 1024, 2048, 4096],
        "margin": {"low": 1.0, "high": 12.0},
        "penalty": {"low": 1e-4, "high": 1.0, "log": True},
        "norm": [1, 2],
    },
}
# What the wide space has for each sampler.
SIZES = [10, 30, 50, 70, 90]
AROUND_ONE = {"low": 0.25, "high": 4.0, "log": True}
GENERATOR_LR = {"low": 1e-4, "high": 1e-1, "log": True}
OF_SAMPLER: dict[str, dict[str, Any]] = {
    "nscaching": {"n1": SIZES, "n2": SIZES, "temperature": AROUND_ONE},
    "kbgan": {"n1": SIZES, "generator_lr": GENERATOR_LR},
    "igan": {"generator_lr": GENERATOR_LR},
    "self-adversarial": {"negatives": [16, 64, 256], "adversarial": AROUND_ONE},
}


def as_toml(part: Part) -> list[Any] | dict[str, Any]:
    """Return the choices or the range in the form of a TOML file."""
    if isinstance(part, CategoricalDistribution):
        return list(part.choices)
    return {"low": part.low, "high": part.high, "log": part.log}


def size(part: Part) -> float:
    """Return the number of values."""
    if isinstance(part, CategoricalDistribution):
        return len(part.choices)
    return part.high - part.low + 1 if isinstance(part, IntDistribution) else math.inf


def short(value: Any) -> str:  # noqa: ANN401
    """Return a value of a setting as text, with three digits of a float."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def make_space(
    asked: str | Path | Mapping[str, Any], config: TrainConfig, trust: bool = False
) -> Space:
    """Return the space by name, from a TOML file, or from a table of the same form.

    ``config`` holds the settings that are not tuned. They decide which hyperparameters matter.
    """
    if isinstance(asked, Mapping):
        return _parse(asked, "space", config)
    if asked in NAMED:
        return _parse(_named(str(asked), config), f"space {asked}", config)
    path = user_path(asked)
    if path.suffix != ".toml" and not path.exists():
        raise UserError(
            f"{unknown(flag('space'), str(asked), NAMED)}, or a file of yours: FILE.toml"
        )
    values = read_toml(path)
    if not trust:
        refuse_outside_code(path, values)
    return _parse(values, str(path), config)


def _named(name: str, config: TrainConfig) -> dict[str, Any]:
    """Return the part of a named space that matters for the model and the sampler."""
    model = MODELS.get(config.model)
    left_out = {"norm" if model.family == "semantic" else "penalty"}
    if choose_objective(config, model) not in ("margin", "shifted"):
        left_out.add("margin")
    table = {key: value for key, value in NAMED[name].items() if key not in left_out}
    of_sampler = OF_SAMPLER.get(config.sampler.casefold(), {}) if name == "wide" else {}
    return table | of_sampler


def _parse(values: Mapping[str, Any], where: str, config: TrainConfig) -> Space:
    """Check a table of choices and ranges; errors name where, the key and the value."""
    space: Space = {}
    for given, value in values.items():
        key = given.replace("-", "_")  # a key may be written like its flag
        if key not in HINTS:
            raise UserError(f"{where}: {unknown('key', given, HINTS)}")
        if key in space:
            raise UserError(f"{where}: {given} is given twice")
        what = f"{where}: {key}"
        if key in FLAGS_ONLY:
            raise UserError(f"{what} is not tuned: give {flag(key)}, the same for all trials")
        if isinstance(value, list | tuple) and value:
            choices = tuple(_value(what, key, one, config) for one in value)
            if len(set(choices)) < len(choices):
                raise UserError(f"{what}: {value!r} holds a value twice")
            space[key] = CategoricalDistribution(choices)
        elif isinstance(value, Mapping):
            space[key] = _range(what, key, value, config)
        else:
            example = "a list of choices or {low = …, high = …, log = true}"
            raise UserError(f"{what} must be {example}, not {value!r}")
    if not space:
        raise UserError(f"{where}: it names no hyperparameter to tune, such as lr = [0.001, 0.01]")
    return space


def _range(what: str, key: str, value: Mapping[str, Any], config: TrainConfig) -> Part:
    for name in value:
        if name not in ("low", "high", "log"):
            raise UserError(f"{what}: {unknown('key', name, ('low', 'high', 'log'))}")
    hint = HINTS[key]
    if not {int, float} & {hint, *get_args(hint)}:  # a name, a switch, one of a few
        raise UserError(f"{what} knows no range, {dict(value)!r}: give a list of choices")
    for name in ("low", "high"):
        if name not in value:
            raise UserError(f"{what}: the range {dict(value)!r} lacks {name}")
    low, high = (_value(f"{what}.{name}", key, value[name], config) for name in ("low", "high"))
    log = check_type(f"{what}.log", bool, value.get("log", False))
    if not low < high:
        raise UserError(f"{what}: low must be below high, not {low:g} and {high:g}")
    if log and not low > 0:
        raise UserError(f"{what}: low must be above zero where log = true, not {low:g}")
    kind = IntDistribution if isinstance(low, int) else FloatDistribution
    return kind(low, high, log=log)


def _value(what: str, key: str, value: Any, config: TrainConfig) -> Any:  # noqa: ANN401
    """Return a value in the type of its field, if the fixed settings allow the value."""
    value = check_type(what, HINTS[key], value)
    if key == "validate_every" and value == 0:
        raise UserError(f"{what} 0: a search is judged by validation")
    TrainConfig.from_dict({**config.to_dict(), key: value}, what)
    if key in ("model", "generator"):
        return MODELS.canonical(value)
    return SAMPLERS.canonical(value) if key == "sampler" else value
