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
from nscaching.samplers.objective import choose_objective
from nscaching.training.defaults import with_settings

Part = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Part]  # choices or a range, by the name of the hyperparameter

NAMED = ("paper", "wide")  # TOML files beside this file
STARTS = ("pretrain", "generator_pretrain")  # checked, and made absolute, once


def as_toml(part: Part) -> list[Any] | dict[str, Any]:
    if isinstance(part, CategoricalDistribution):
        return list(part.choices)
    return {"low": part.low, "high": part.high, "log": part.log}


def first(part: Part) -> Any:  # noqa: ANN401
    return part.choices[0] if isinstance(part, CategoricalDistribution) else part.low


def size(part: Part) -> float:
    if isinstance(part, CategoricalDistribution):
        return len(part.choices)
    return part.high - part.low + 1 if isinstance(part, IntDistribution) else math.inf


def short(value: Any) -> str:  # noqa: ANN401
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
        path = Path(__file__).with_name(f"{asked}.toml")
        return _parse(_that_matters(read_toml(path), config), str(path), config)
    path = user_path(asked)
    if path.suffix != ".toml" and not path.exists():
        known = unknown(flag("space"), str(asked), NAMED)
        raise UserError(f"{known}, or a file of yours: FILE.toml")
    values = read_toml(path)
    if not trust:
        refuse_outside_code(path, values)
    return _parse(values, str(path), config)


def _that_matters(values: dict[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Return the part of a named space that matters for the model and the sampler."""
    model = MODELS.get(config.model)
    left_out = {"samplers", "norm" if model.family == "semantic" else "penalty"}
    if choose_objective(config, model) not in ("margin", "shifted"):
        left_out.add("margin")
    of_sampler = values.get("samplers", {}).get(config.sampler.casefold(), {})
    if config.objective == "softmax":  # which draws no single negatives
        of_sampler = {}
    return {**{key: values[key] for key in values if key not in left_out}, **of_sampler}


def _parse(values: Mapping[str, Any], where: str, config: TrainConfig) -> Space:
    space: Space = {}
    for given, value in values.items():
        key = given.replace("-", "_")  # a key may be written like its flag
        if key not in HINTS:
            raise UserError(f"{where}: {unknown('key', given, HINTS)}")
        if key in space:
            raise UserError(f"{where}: {given} is given twice")
        if key in STARTS:
            raise UserError(
                f"{where}: {key} is not tuned: give {flag(key)}, the same for all trials"
            )
        space[key] = _part(where, key, value, config)
    if not space:
        raise UserError(f"{where}: it names no hyperparameter to tune, such as lr = [0.001, 0.01]")
    return space


def _part(where: str, key: str, value: Any, config: TrainConfig) -> Part:  # noqa: ANN401
    if isinstance(value, list | tuple) and value:
        choices = tuple(_value(where, key, one, config) for one in value)
        if len(set(choices)) < len(choices):
            raise UserError(f"{where}: {key}: {value!r} holds a value twice")
        return CategoricalDistribution(choices)
    bounds = {"low", "high"}
    if not isinstance(value, Mapping) or not bounds <= value.keys() <= {*bounds, "log"}:
        forms = "a list of choices or {low = …, high = …, log = true}"
        raise UserError(f"{where}: {key} must be {forms}, not {value!r}")
    hint = HINTS[key]
    if not {int, float} & {hint, *get_args(hint)}:  # a name, a switch, one of a few
        raise UserError(f"{where}: {key} knows no range, {value!r}: give a list of choices")
    low, high = (_value(where, key, value[name], config) for name in ("low", "high"))
    log = check_type(f"{where}: {key}.log", bool, value.get("log", False))
    if not low < high:
        raise UserError(f"{where}: {key}: low must be below high, not {low:g} and {high:g}")
    if log and not low > 0:
        raise UserError(f"{where}: {key}: low must be above zero where log = true, not {low:g}")
    kind = IntDistribution if isinstance(low, int) else FloatDistribution
    return kind(low, high, log=log)


def _value(where: str, key: str, value: Any, config: TrainConfig) -> Any:  # noqa: ANN401
    """Return a value in the type of its field, if the fixed settings allow the value."""
    if key == "validate_every" and value == 0:
        raise UserError(f"{where}: {key} 0: a search is judged by validation")
    return with_settings(config, {key: value}, where).flat()[key]
