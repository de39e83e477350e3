"""The settings of a training run: one dataclass for Python, command line and TOML file.

Python groups the settings of the cache and of the generator: ``config.cache.n1``. Flags, TOML keys
and the methods of ``TrainConfig`` take and give all settings without groups, such as ``n1``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nscaching.errors import UserError, check_bounds, flag, reading, unknown
from nscaching.settings import CacheSettings, GeneratorSettings
from nscaching.units import read_budget

Config = TypeVar("Config")

MOST = 2**31 - 1  # of any whole number: beyond it PyTorch's seeds and sizes overflow
MOST_TOML = 1 << 20  # bytes of a configuration
MOST_THREADS = 1024  # far beyond it OpenMP ends the process

GROUPS = {"cache": CacheSettings, "gan": GeneratorSettings}  # fields of TrainConfig


@dataclass(frozen=True)
class TrainConfig:
    """Every hyperparameter. Field names are flags and TOML keys.

    What ``train`` and ``tune`` are not told they choose for the graph; the values here are those of
    ``TrainConfig()``, of which nothing is left to choose.
    """

    model: str = "TransE"
    """Scoring function: ANALOGY, ComplEx, DistMult, HolE, ManifoldE, ManifoldE-hyperplane, RESCAL,
    RotatE, SimplE, TransD, TransE, TransH, TransM, TransR, TranSparse, or a class:
    package.module:Class or file.py:Class."""
    sampler: str = "nscaching"
    """Negatives: nscaching, bernoulli, uniform, self-adversarial, kbgan, igan, none, or a class."""
    dim: int = 100
    """Size d of an embedding vector (ComplEx, RotatE: d complex numbers; SimplE: twice d)."""
    norm: Literal[1, 2] = 1
    """Norm of the translational distance: 1 or 2 (ManifoldE: always 2)."""
    epochs: int = 200
    """Passes over the training triples."""
    batch_size: int = 512
    """Training triples in one step."""
    lr: float = 0.001
    """Learning rate of the optimizer."""
    optimizer: Literal["adam", "row-adam", "adagrad", "row-adagrad"] = "adam"
    """Adam; Adagrad; or, cheaper with many entities, either for the rows with a gradient alone,
    row-adagrad with one number of state for a row."""
    adagrad_start: float = 0.0
    """What the sums of squares of adagrad and row-adagrad start at: more makes the first steps
    shorter."""
    objective: Literal["auto", "margin", "logistic", "shifted", "softmax", "1vsall", "kvsall"] = (
        "auto"
    )
    """Loss: margin ranking (Eq. 1), logistic (Eq. 2), logistic of f + margin, softmax over cached
    entities and a tail, softmax over all entities (1vsall), or every entity true or false (kvsall);
    auto: by the model's family and the sampler."""
    tail: int = 512
    """Random entities, shared by a batch, that stand for all entities that are not cached
    (softmax)."""
    scale: float = 1.0
    """Factor of the scores in a softmax: distances may need more than 1 (softmax, 1vsall)."""
    relation_weight: float = 0.0
    """Weight of a second loss, the softmax over the relations of (h, ?, t); 0: none (softmax,
    1vsall)."""
    reciprocal: bool = False
    """Ask (?, r, t) as (t, r⁻¹, ?); the inverse relation has a vector of its own (softmax, 1vsall,
    kvsall)."""
    margin: float = 8.0
    """Margin of the ranking loss and of the shifted logistic loss."""
    penalty: float | None = None
    """Penalty λ; None: 0.1 for semantic matching with negatives, else 0."""
    penalty_norm: Literal["l2", "n3"] = "l2"
    """What is penalised: λ/2·‖Θ‖² in an epoch's loss, or λ·(|h|³ + |r|³ + |t|³) of each triple."""
    negatives: int | None = None
    """Negatives of each triple; None: 64 for self-adversarial, else 1."""
    cache: CacheSettings = field(default_factory=CacheSettings)
    side: Literal["bernoulli", "uniform"] = "bernoulli"
    """Head or tail: by tph/(tph+hpt) of the relation, or a fair coin (nscaching, kbgan, igan)."""
    gan: GeneratorSettings = field(default_factory=GeneratorSettings)
    adversarial: float = 1.0
    """Negatives are weighed by softmax(this · score) (self-adversarial)."""
    filter_known: bool = False
    """Keep known training triples out of the negatives (all samplers)."""
    validate_every: int = 10
    """Epochs between rankings of the validation triples; 0: never."""
    validate_candidates: int = 0
    """Random entities that each validation ranks an answer among; 0: all entities."""
    patience: int = 0
    """Stop after this many validations without a better MRR; 0: run all epochs."""
    seed: int = 0
    """Seed of everything random."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes CUDA when it is there."""
    kernels: Literal["auto", "reference", "numba", "triton"] = "auto"
    """Implementation of the hot operations: plain PyTorch, compiled for CPUs, or for GPUs."""
    threads: int = 0
    """CPU threads; 0: as many as PyTorch chooses."""
    pretrain: str = ""
    """Run folder whose parameters to start from; empty: a Xavier start."""

    def __post_init__(self) -> None:
        for group, kind in GROUPS.items():
            check_type(group, kind, getattr(self, group))
        values = {
            name: check_type(flag(name), HINTS[name], value) for name, value in self.flat().items()
        }
        _check_values(values)
        for name, value in _arguments(values).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "configuration") -> TrainConfig:
        """Build a configuration from plain values; errors name ``where``, the key and the value."""
        return from_values(lambda **checked: cls(**_arguments(checked)), HINTS, values, where)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, without those that are left open."""
        return {name: value for name, value in self.flat().items() if value is not None}

    def flat(self) -> dict[str, Any]:
        """Return all settings by the names of their flags and TOML keys."""
        return {
            name: getattr(getattr(self, GROUP_OF[name]) if name in GROUP_OF else self, name)
            for name in HINTS
        }

    def changed(self, **settings: Any) -> TrainConfig:  # noqa: ANN401  (any field's type)
        """Return the configuration with some settings changed: ``config.changed(n1=30)``."""
        for name in settings:
            if name not in HINTS:
                raise unknown("setting", name, HINTS)
        return TrainConfig(**_arguments(self.flat() | settings))


GROUP_OF = {name: group for group, kind in GROUPS.items() for name in get_type_hints(kind)}


def _hints() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(TrainConfig).items():
        found |= get_type_hints(hint) if name in GROUPS else {name: hint}
    names = list(found)
    names.remove("side")
    names.insert(names.index("candidates"), "side")  # the order of all files so far
    return {name: found[name] for name in names}


HINTS = _hints()  # types of all settings, by the names of their flags and TOML keys

BY_GRAPH = (
    "model", "sampler", "dim", "norm", "epochs", "batch_size", "lr", "optimizer", "objective",
    "tail", "scale", "reciprocal", "margin", "penalty", "penalty_norm", "n1", "refresh",
    "temperature", "side", "validate_every", "patience",
)  # fmt: skip
"""The settings that are chosen for a graph where they are left out (training/defaults.py)."""


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of TrainConfig: settings, those of a group as the group."""
    found: dict[str, Any] = {name: v for name, v in values.items() if name not in GROUP_OF}
    for group, kind in GROUPS.items():
        inner = {name: v for name, v in values.items() if GROUP_OF.get(name) == group}
        found[group] = kind(**inner)
    return found


AT_LEAST = dict.fromkeys(
    ["seed", "lazy", "near", "strata", "validate_every", "patience", "threads"], 0
)
AT_LEAST |= dict.fromkeys(["dim", "epochs", "batch_size", "n2", "negatives", "tail"], 1)
AT_LEAST |= {"n1": 0, "validate_candidates": 0}
POSITIVE = ("lr", "temperature", "generator_lr", "adversarial", "scale")
NOT_NEGATIVE = ("margin", "penalty", "relation_weight", "adagrad_start", "entropy_bonus")


def _check_values(values: Mapping[str, Any]) -> None:
    if values["sampler"].casefold() == "none" and (values["negatives"] or values["filter_known"]):
        what = flag("negatives") if values["negatives"] else flag("filter_known")
        raise UserError(f"{flag('sampler')} none draws no negatives: leave out {what}")
    if values["n1"] == 0 and values["objective"] not in ("auto", "softmax"):
        raise no_cache()
    if values["patience"] and not values["validate_every"]:
        raise UserError(f"{flag('patience')} needs validation: give {flag('validate_every')} too")
    if values["cache_memory"] is not None:
        read_budget(values["cache_memory"], "cache_memory")
    for name, value in values.items():
        if value is None:
            continue
        if name in AT_LEAST:
            check_bounds(name, value, AT_LEAST[name], MOST_THREADS if name == "threads" else MOST)
        elif name in POSITIVE and not 0 < value < math.inf:
            raise UserError(f"{flag(name)} must be a positive number, not {value}")
        elif name in NOT_NEGATIVE and not 0 <= value < math.inf:
            raise UserError(f"{flag(name)} must be zero or a positive number, not {value}")


def no_cache() -> UserError:
    return UserError(f"{flag('n1')} must be at least 1, not 0: only softmax does without a cache")


def from_values(
    make: Callable[..., Config], hints: Mapping[str, Any], values: Mapping[str, Any], where: str
) -> Config:
    for key in values:
        if key not in hints:
            raise UserError(f"{where}: {unknown('key', key, hints)}")
    checked = {
        key: check_type(f"{where}: {key}", hints[key], value) for key, value in values.items()
    }
    try:
        return make(**checked)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def check_type(what: str, hint: Any, value: Any) -> Any:  # noqa: ANN401  (any field's type)
    """Return the value, a whole number as a float where one is asked for, or raise a UserError."""
    if type(None) in get_args(hint):  # a value that may be left open
        if value is None:
            return None
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple:  # of any length; a list in a file
        if not isinstance(value, list | tuple):
            raise UserError(f"{what} must be a list, not {value!r}")
        return tuple(check_type(what, get_args(hint)[0], member) for member in value)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if value not in choices or type(value) is not type(choices[0]):
            raise unknown(f"value of {what}:", str(value), map(str, choices))
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 10**300 else math.inf
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UserError(f"{what} must be of type {hint.__name__}, not {value!r}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    with reading(path), path.open("rb") as file:
        data = file.read(MOST_TOML + 1)
        if len(data) > MOST_TOML:
            raise ValueError(f"larger than {MOST_TOML:,} bytes")
        return tomllib.loads(data.decode("utf-8-sig"))


def write_toml(path: Path, values: dict[str, Any]) -> None:
    import tomli_w

    path.write_text(tomli_w.dumps(values), encoding="utf-8")
