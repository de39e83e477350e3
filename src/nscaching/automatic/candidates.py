"""What is worth trying on a graph: models, plain samplers, and variants of the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.models import MODELS
from nscaching.runs.folder import Record
from nscaching.samplers.objective import choose_objective
from nscaching.training.defaults import settings_for

# Name → settings; all others are chosen for the graph. The first are tried where time is short.
BASES: dict[str, dict[str, Any]] = {
    "ComplEx": {"model": "ComplEx"},
    "TransE": {"model": "TransE"},
    "ComplEx, random negatives": {"model": "ComplEx", "sampler": "bernoulli"},
    "DistMult": {"model": "DistMult"},
    "RotatE": {"model": "RotatE"},
    "TransE, random negatives": {"model": "TransE", "sampler": "uniform"},
}
# What a variant changes, and by which factor.
FACTORS = {"penalty": 3.0, "scale": 1.5, "margin": 1.5, "dim": 2.0, "lr": 3.0}
LEAST_DIM = 8

# A training has no last epoch of its own: the time or the lack of a gain ends it.
EPOCHS = 100_000

State = Literal["new", "stopped", "finished", "failed"]
Changes = dict[str, Any]


@dataclass(eq=False)
class Candidate:
    """Settings that are tried, and how far their training is."""

    number: int  # from one, in the order of trying
    base: str
    changes: Changes  # of the settings of the base
    parent: int  # the candidate whose variant this is; 0: none
    validate_every: int
    patience: int  # validations without a gain that end the training
    config: TrainConfig
    looks: list[Record] = field(default_factory=list)  # rankings of the validation triples
    seconds: float = 0.0  # of training and validation
    state: State = "new"
    reason: str = ""  # why it failed

    @property
    def name(self) -> str:
        return ", ".join([self.base, *(f"{key} {value:g}" for key, value in self.changes.items())])

    @property
    def best(self) -> Record | None:
        """The best validation, of equal ones the first."""
        return max(self.looks, key=lambda look: look["mrr"], default=None)

    @property
    def mrr(self) -> float:
        return self.best["mrr"] if self.best and self.state != "failed" else -1.0

    @property
    def without_gain(self) -> int:
        """Validations since the best."""
        return len(self.looks) - 1 - self.looks.index(self.best) if self.best else 0

    @property
    def is_open(self) -> bool:
        return self.state in ("new", "stopped")


def make_config(
    graph: KnowledgeGraph, base: str, changes: Changes, place: Mapping[str, Any]
) -> TrainConfig:
    """Return the settings of a candidate, as ``train`` chooses them for the graph.

    ``place`` has seed, device and threads.
    """
    return settings_for(graph, **{**BASES[base], **changes, **place})


def endless(config: TrainConfig, validate_every: int) -> TrainConfig:
    return config.changed(epochs=EPOCHS, patience=0, validate_every=validate_every)


def neighbours(config: TrainConfig) -> list[Changes]:
    """Return changes of one setting each, the most promising first."""
    model = MODELS.get(config.model)
    softmax = choose_objective(config, model) == "softmax"
    if model.family == "semantic":
        first = ["penalty"] if config.penalty else []
    else:
        first = ["scale" if softmax else "margin"]
    values = config.flat()
    up = {name: _rounded(values[name] * FACTORS[name]) for name in (*first, "dim", "lr")}
    down = {name: _rounded(values[name] / FACTORS[name]) for name in (*first, "dim", "lr")}
    up["dim"], down["dim"] = int(up["dim"]), int(down["dim"])
    order = [(name, side[name]) for name in (*first, "dim", "lr") for side in (down, up)]
    order.sort(key=lambda change: change == ("dim", down["dim"]))  # a smaller model: last
    return [{name: value} for name, value in order if name != "dim" or value >= LEAST_DIM]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
