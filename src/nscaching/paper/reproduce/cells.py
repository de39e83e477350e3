"""The cells of a table, and the training that each of them asks for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nscaching.config import TrainConfig
from nscaching.data import datasets
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.paper.reproduce.asked import Asked
from nscaching.paper.reproduce.task import Task
from nscaching.samplers import SAMPLERS

__all__ = ["GENERATOR", "PRETRAINED", "STARTS_FROM", "Cell", "Training", "fingerprint", "plan"]

PRETRAINED, GENERATOR = "pretrained", "generator"
"""A short Bernoulli training to start from: of the model, or of the generator if it is not that."""
STARTS_FROM = (PRETRAINED, GENERATOR)

EPOCHS = {"bernoulli": 3000}
OTHER_EPOCHS = 1000
WITH_START = ("nscaching", "kbgan", "igan")
WITH_GENERATOR = ("kbgan", "igan")
TUNED_FOR_CACHE = ("nscaching", "bernoulli")

# Where a training runs, and which of several equal ones it is, are no settings of its cell.
NOT_COMPARED = ("seed", "device", "kernels", "threads", "pretrain", "generator_pretrain")


class Cell(NamedTuple):
    """One training of a table; several seeds make one of its rows."""

    data: str
    model: str
    sampler: str
    start: str
    """scratch or pretrain, or empty where there is no choice."""
    protocol: str
    """Whose hyperparameters: "paper" for all samplers the same, "cache" tuned for the cache."""
    seed: int

    def __str__(self) -> str:
        start = f"{self.start}, " if self.start else ""
        settings = "paper's protocol" if self.protocol == "paper" else "tuned for the cache"
        return f"{self.data} {self.model} {self.sampler}, {start}{settings}, seed {self.seed}"


@dataclass(frozen=True)
class Training:
    """What to train for a cell, and which trainings it starts from."""

    cell: Cell
    config: TrainConfig
    start: Training | None = None
    generator_start: Training | None = None

    @property
    def needs(self) -> Iterator[Training]:
        """The trainings whose parameters this one starts from."""
        return (t for t in (self.start, self.generator_start) if t is not None)

    @property
    def configs(self) -> dict[str, TrainConfig]:
        """All its settings, under the names that a line of results has them by."""
        found = {"settings": self.config}
        if self.start:
            found["pretraining"] = self.start.config
        if self.generator_start:
            found["generator_pretraining"] = self.generator_start.config
        return found

    @cached_property
    def fingerprint(self) -> str:
        """Equal for trainings of equal settings, whatever their seed and machine."""
        return _fingerprint(self.configs)

    def folder(self, data_fingerprint: str) -> str:
        """Return a name for its run folder; other settings, and other data, have another."""
        data, model, _, _, _, seed = self.cell
        marks = f"{self.fingerprint[:8]}-{data_fingerprint[:8]}"
        return f"{data}-{model}-seed{seed}-{marks}".lower()


def fingerprint(line: dict[str, Any]) -> str:
    """Return that of a training by its line; settings that it does not know are the defaults."""
    parts = ("settings", "pretraining", "generator_pretraining")
    return _fingerprint({p: TrainConfig.from_dict(line[p], p) for p in parts if p in line})


def _fingerprint(configs: dict[str, TrainConfig]) -> str:
    compared = {
        part: {k: v for k, v in config.to_dict().items() if k not in NOT_COMPARED}
        for part, config in configs.items()
    }
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()


def plan(task: Task, asked: Asked) -> list[Training]:
    """Return the trainings of a table, each behind those it starts from; seed by seed."""
    models = [MODELS.canonical(model) for model in asked.models or task.models]
    data = [_data(name) for name in asked.data or task.data]
    samplers = [_sampler(name) for name in asked.samplers or Asked.samplers]
    found: dict[Training, None] = {}  # each once, in order
    for seed in range(1, asked.seeds + 1):
        for where in data:
            for model in models:
                for protocol in asked.protocol or Asked.protocol:
                    for sampler in samplers:
                        for training in _row(asked, where, model, sampler, protocol, seed):
                            found |= dict.fromkeys([*training.needs, training])
    return list(found)


def _row(
    asked: Asked, data: str, model: str, sampler: str, protocol: presets.Variant, seed: int
) -> Iterator[Training]:
    """Make the trainings of one sampler: one, or one for each start."""
    if sampler == PRETRAINED:
        yield _pretraining(asked, data, model, protocol, seed)
        return
    if protocol == "cache" and sampler not in TUNED_FOR_CACHE:
        return
    config = _config(asked, data, model, protocol, seed)
    tuned = config.epochs if protocol == "cache" else OTHER_EPOCHS
    epochs = asked.epochs or EPOCHS.get(sampler, tuned)
    config = dataclasses.replace(config, sampler=sampler, epochs=epochs)
    for start in (asked.starts or Asked.starts) if sampler in WITH_START else ("",):
        before = generator = None
        if start == "pretrain":
            before = _pretraining(asked, data, model, protocol, seed)
            if sampler in WITH_GENERATOR:
                shape = {"dim": config.dim, "norm": config.norm}
                generator = _pretraining(asked, data, config.generator, protocol, seed, **shape)
        yield Training(Cell(data, model, sampler, start, protocol, seed), config, before, generator)


def _pretraining(
    asked: Asked,
    data: str,
    model: str,
    protocol: presets.Variant,
    seed: int,
    **shape: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Training:
    """Make the short training that others start from; ``shape`` is that of a generator."""
    own = _config(asked, data, model, protocol, seed)
    epochs = min(asked.epochs or asked.pretrain_epochs, asked.pretrain_epochs)
    own = dataclasses.replace(own, sampler="bernoulli", epochs=epochs)
    config = dataclasses.replace(own, **shape)
    name = PRETRAINED if config == own else GENERATOR
    return Training(Cell(data, model, name, "", protocol, seed), config)


def _config(
    asked: Asked, data: str, model: str, protocol: presets.Variant, seed: int
) -> TrainConfig:
    folder = user_path(asked.presets) if asked.presets else presets.FOLDER
    name = f"{data}-{model}".lower()
    try:
        where, config = presets.load(name, protocol, folder, asked.trust)
    except UserError as error:
        if name in presets.names(folder) or not folder.is_dir():
            raise
        raise UserError(
            f"{error}; or give {flag('presets')} FOLDER with {name}.toml in it"
        ) from None
    if (_data(where), MODELS.canonical(config.model)) != (data, model):
        raise UserError(f"{folder / name}.toml is for {config.model} on {where}")
    config = dataclasses.replace(config, validate_every=asked.validate_every, seed=seed)
    return config if asked.device == "auto" else dataclasses.replace(config, device=asked.device)


def _data(name: str) -> str:
    known = datasets.find(name)
    if known is None and name.casefold() != "world":
        raise unknown("data set", name, ["world", *datasets.KNOWN])
    return known.name if known else "world"


def _sampler(name: str) -> str:
    known = [PRETRAINED, *(sampler for sampler in SAMPLERS.names() if sampler != "none")]
    if name.casefold() not in known:
        raise unknown("sampler", name, known)
    return name.casefold()
