"""The cells of a table, and the trainings that they need."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nscaching.config import TrainConfig
from nscaching.data import datasets
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.paper.published import PaperTable, paper_epochs
from nscaching.paper.reproduce.selection import Protocol, Selection
from nscaching.samplers import SAMPLERS

PROTOCOLS = {"paper": "paper's protocol", "cache": "tuned for the cache"}
PRETRAINED, GENERATOR = "pretrained", "generator"
"""A short Bernoulli training that others start from: with the settings of the model's own preset,
or with the dimension and norm that a generator must share with its model."""
STARTS_FROM = (PRETRAINED, GENERATOR)
PARTS = ("settings", "pretraining", "generator_pretraining")
"""Settings in a line of results: of the training, and of the trainings that it started from."""
WITH_START = ("nscaching", "kbgan", "igan")
WITH_GENERATOR = ("kbgan", "igan")
TUNED_FOR_CACHE = ("nscaching", "bernoulli")
# Settings in which trainings of one cell may differ: the seed, and where a training runs.
NOT_COMPARED = ("seed", "device", "kernels", "threads", "pretrain", "generator_pretrain")


class Cell(NamedTuple):
    """One cell of a table, of which several seeds are trained."""

    data: str
    model: str
    sampler: str
    start: str  # scratch or pretrain; empty where there is no choice
    protocol: Protocol  # of the hyperparameters: as in the paper, or tuned for the cache

    @property
    def settings(self) -> str:
        return PROTOCOLS.get(self.protocol, self.protocol)

    def __str__(self) -> str:
        start = f"{self.start}, " if self.start else ""
        return f"{self.data} {self.model} {self.sampler}, {start}{self.settings}"


@dataclass(frozen=True)
class Training:
    """One seed of a cell: its settings, and the trainings that it starts from."""

    cell: Cell
    config: TrainConfig
    starts: tuple[Training, ...] = ()  # of the model and of the generator, if it has these

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.config.seed}"

    @property
    def configs(self) -> dict[str, TrainConfig]:
        configs = [training.config for training in (self, *self.starts)]
        return dict(zip(PARTS, configs, strict=False))

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.configs)


def fingerprint(configs: dict[str, TrainConfig]) -> str:
    """Return a text that is equal for equal settings, whatever the seed and the machine."""
    compared = {
        part: {k: v for k, v in config.to_dict().items() if k not in NOT_COMPARED}
        for part, config in configs.items()
    }
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()


def plan(table: PaperTable, selection: Selection) -> list[Training]:
    """Return the trainings of a table, seed by seed, each after those that it starts from."""
    cells = itertools.product(
        range(1, selection.seeds + 1),
        [_data(name) for name in selection.data or table.data],
        [MODELS.canonical(model) for model in selection.models or table.models],
        selection.protocol or Selection.protocol,
        [_sampler(name) for name in selection.samplers or Selection.samplers],
    )
    found: dict[Training, None] = {}  # each once, in order
    for seed, data, model, protocol, sampler in cells:
        for training in _trainings(selection, Cell(data, model, sampler, "", protocol), seed):
            found |= dict.fromkeys([*training.starts, training])
    return list(found)


def _trainings(selection: Selection, cell: Cell, seed: int) -> Iterator[Training]:
    sampler, tuned = cell.sampler, cell.protocol == "cache"
    if sampler == PRETRAINED:
        yield _pretraining(selection, cell, seed)
        return
    if tuned and sampler not in TUNED_FOR_CACHE:
        return
    config = _config(selection, cell, seed)
    # The preset of the cache has its own number of epochs.
    epochs = config.epochs if tuned and sampler != "bernoulli" else paper_epochs(sampler)
    config = config.changed(sampler=sampler, epochs=selection.epochs or epochs)
    for start in (selection.starts or Selection.starts) if sampler in WITH_START else ("",):
        starts = []
        if start == "pretrain":
            starts.append(_pretraining(selection, cell, seed))
            if sampler in WITH_GENERATOR:
                generator = cell._replace(model=config.gan.generator)
                starts.append(_pretraining(selection, generator, seed, like=config))
        yield Training(cell._replace(start=start), config, tuple(starts))


def _pretraining(
    selection: Selection, cell: Cell, seed: int, like: TrainConfig | None = None
) -> Training:
    """Make the short training of a start; a generator has the shape of the model it serves."""
    epochs = min(selection.epochs or selection.pretrain_epochs, selection.pretrain_epochs)
    own = _config(selection, cell, seed).changed(sampler="bernoulli", epochs=epochs)
    config = own.changed(dim=like.dim, norm=like.norm) if like else own
    return Training(cell._replace(sampler=PRETRAINED if config == own else GENERATOR), config)


def _config(selection: Selection, cell: Cell, seed: int) -> TrainConfig:
    folder = user_path(selection.presets) if selection.presets else presets.FOLDER
    name, known = f"{cell.data}-{cell.model}".lower(), presets.names(folder)
    if folder.is_dir() and name not in known:
        cure = f"or give {flag('presets')} FOLDER with {name}.toml in it"
        raise UserError(f"{unknown('preset', name, known)}; {cure}")
    if name in known and cell.protocol not in presets.variants(name, folder):
        cure = f"give {flag('presets')} FOLDER with a {name}.toml that has it"
        raise UserError(f"the preset {name} has no [{cell.protocol}]: {cure}")
    data, config = presets.load(name, cell.protocol, folder, selection.trust)
    if (_data(data), MODELS.canonical(config.model)) != (cell.data, cell.model):
        raise UserError(f"{folder / name}.toml is for {config.model} on {data}")
    device = config.device if selection.device == "auto" else selection.device
    return config.changed(validate_every=selection.validate_every, seed=seed, device=device)


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
