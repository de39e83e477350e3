"""What a search tries: for each hyperparameter a list of choices, or a range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from nscaching.config import TrainConfig, check_type, flag, read_toml
from nscaching.errors import UserError, unknown, user_path
from nscaching.models import MODELS
from nscaching.registry import refuse_outside_code
from nscaching.samplers import SAMPLERS
from nscaching.training.objective import choose_objective

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["SPACES", "Choices", "Range", "Space", "make_space"]

SPACES = ("paper", "wide")
FLAGS_ONLY = ("pretrain", "generator_pretrain")  # checked, and made absolute, once


@dataclass(frozen=True)
class Choices:
    """Some values, of which a trial takes one."""

    values: tuple[Any, ...]

    def plain(self) -> list[Any]:
        """Return what a TOML file would say."""
        return list(self.values)

    def size(self) -> float:
        """Count the values."""
        return len(self.values)

    def distribution(self) -> BaseDistribution:
        """Return the same for optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; by their logarithm if ``log``."""

    low: float
    high: float
    log: bool = False

    def plain(self) -> dict[str, Any]:
        """Return what a TOML file would say."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def size(self) -> float:
        """Count the values: whole numbers, or without end."""
        return self.high - self.low + 1 if isinstance(self.low, int) else math.inf

    def distribution(self) -> BaseDistribution:
        """Return the same for optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        kind = IntDistribution if isinstance(self.low, int) else FloatDistribution
        return kind(self.low, self.high, log=self.log)  # type: ignore[arg-type]


Space = dict[str, Choices | Range]
"""By the name of the hyperparameter."""


def make_space(
    asked: str | Path | Mapping[str, Any], config: TrainConfig, trust: bool = False
) -> Space:
    """Return the space by name, from a TOML file, or from a table of the same form.

    ``config`` holds all that is not tuned; it says which hyperparameters matter.
    """
    if isinstance(asked, Mapping):
        return _parse(asked, "space", config)
    if asked in SPACES:
        return (_paper if asked == "paper" else _wide)(config)
    path = user_path(asked)
    if path.suffix != ".toml" and not path.exists():
        known = unknown(flag("space"), str(asked), SPACES)
        raise UserError(f"{known}, or a file of yours: FILE.toml")
    values = read_toml(path)
    if not trust:
        refuse_outside_code(path, values)
    return _parse(values, str(path), config)


def _paper(config: TrainConfig) -> Space:
    """Return the grid of the paper."""
    grid: Space = {"dim": Choices((20, 50, 100, 200)), "lr": Choices((1e-4, 1e-3, 1e-2, 1e-1))}
    if _has_margin(config):
        grid["margin"] = Choices((1.0, 2.0, 3.0, 4.0))
    if _is_semantic(config):
        grid["penalty"] = Choices((1e-3, 1e-2, 1e-1))
    return grid


def _wide(config: TrainConfig) -> Space:
    """Return a larger space, with the settings of the sampler."""
    space: Space = {
        "dim": Choices((50, 100, 200, 400)),
        "lr": Range(1e-4, 1e-1, log=True),
        "batch_size": Choices((128, 256, 512, 1024, 2048, 4096)),
    }
    if _has_margin(config):
        space["margin"] = Range(1.0, 12.0)
    if _is_semantic(config):
        space["penalty"] = Range(1e-4, 1.0, log=True)
    else:
        space["norm"] = Choices((1, 2))
    sizes, sampler = Choices((10, 30, 50, 70, 90)), config.sampler.casefold()
    if sampler == "nscaching":
        space |= {"n1": sizes, "n2": sizes, "temperature": Range(0.25, 4.0, log=True)}
    elif sampler == "kbgan":
        space |= {"n1": sizes, "generator_lr": Range(1e-4, 1e-1, log=True)}
    elif sampler == "igan":
        space["generator_lr"] = Range(1e-4, 1e-1, log=True)
    elif sampler == "self-adversarial":
        space |= {"negatives": Choices((16, 64, 256)), "adversarial": Range(0.25, 4.0, log=True)}
    return space


def _has_margin(config: TrainConfig) -> bool:
    return choose_objective(config, MODELS.get(config.model)) in ("margin", "shifted")


def _is_semantic(config: TrainConfig) -> bool:
    return MODELS.get(config.model).family == "semantic"


def _parse(values: Mapping[str, Any], where: str, config: TrainConfig) -> Space:
    """Check a table of choices and ranges; errors name where, the key and the value."""
    hints, space = get_type_hints(TrainConfig), Space()
    for given, value in values.items():
        key = given.replace("-", "_")  # as the flag is written
        if key not in hints:
            raise UserError(f"{where}: {unknown('key', given, hints)}")
        if key in space:
            raise UserError(f"{where}: {given} is given twice")
        what = f"{where}: {key}"
        if key in FLAGS_ONLY:
            raise UserError(f"{what} is not tuned: give {flag(key)}, the same for all trials")
        if isinstance(value, list | tuple) and value:
            choices = tuple(_value(what, key, one, config) for one in value)
            if len(set(choices)) < len(choices):
                raise UserError(f"{what}: {value!r} holds a value twice")
            space[key] = Choices(choices)
        elif isinstance(value, Mapping):
            space[key] = _range(what, key, value, config)
        else:
            example = "a list of choices or {low = …, high = …, log = true}"
            raise UserError(f"{what} must be {example}, not {value!r}")
    if not space:
        raise UserError(f"{where}: it names no hyperparameter to tune, such as lr = [0.001, 0.01]")
    return space


def _range(what: str, key: str, value: Mapping[str, Any], config: TrainConfig) -> Range:
    for name in value:
        if name not in ("low", "high", "log"):
            raise UserError(f"{what}: {unknown('key', name, ('low', 'high', 'log'))}")
    hint = get_type_hints(TrainConfig)[key]
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
    return Range(low, high, log)


def _value(what: str, key: str, value: Any, config: TrainConfig) -> Any:  # noqa: ANN401
    """Return a value as a configuration holds it, if one with it and the fixed settings can be."""
    value = check_type(what, get_type_hints(TrainConfig)[key], value)
    if key == "validate_every" and value == 0:
        raise UserError(f"{what} 0: a search is judged by validation")
    TrainConfig.from_dict({**config.to_dict(), key: value}, what)
    if key in ("model", "generator"):
        return MODELS.canonical(value)
    return SAMPLERS.canonical(value) if key == "sampler" else value
