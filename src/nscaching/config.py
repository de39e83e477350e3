"""The settings of a training run: one dataclass gives the flags and the TOML keys."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nscaching.errors import UserError, flag, unknown

__all__ = ["TrainConfig", "check_type", "flag", "from_values", "read_toml", "write_toml"]

Config = TypeVar("Config")

MOST = 2**31 - 1  # of any whole number: beyond it PyTorch's seeds and sizes overflow
MOST_TOML = 1 << 20  # bytes of a configuration
MOST_THREADS = 1024  # far beyond it OpenMP ends the process


_known_hints: dict[type, dict[str, Any]] = {}  # reading annotations takes a millisecond


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _known_hints:
        _known_hints[cls] = get_type_hints(cls)
    return _known_hints[cls]


@dataclass(frozen=True)
class TrainConfig:
    """Every hyperparameter, with the value a newcomer gets. Field names are flags and TOML keys."""

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
    optimizer: Literal["adam", "row-adam", "adagrad"] = "adam"
    """Adam; Adam that moves only rows with a gradient (cheaper with many entities); or Adagrad."""
    objective: Literal["auto", "margin", "logistic", "shifted", "1vsall", "kvsall"] = "auto"
    """Loss: margin ranking (Eq. 1), logistic (Eq. 2), logistic of f + margin, softmax over all
    entities, or every entity true or false; auto: by the model's family and the sampler."""
    margin: float = 8.0
    """Margin of the ranking loss and of the shifted logistic loss."""
    penalty: float | None = None
    """Penalty λ; None: 0.1 for semantic matching with negatives, else 0."""
    penalty_norm: Literal["l2", "n3"] = "l2"
    """What is penalised: λ/2·‖Θ‖² in an epoch's loss, or λ·(|h|³ + |r|³ + |t|³) of each triple."""
    negatives: int | None = None
    """Negatives of each triple; None: 64 for self-adversarial, else 1."""
    n1: int = 50
    """Entities cached for each key (nscaching), or candidates of the generator (kbgan)."""
    n2: int = 50
    """Fresh random candidates in each refresh of a key (nscaching)."""
    draw: Literal["uniform", "importance", "top"] = "uniform"
    """How a negative is drawn from the cache (nscaching)."""
    refresh: Literal["importance", "top", "uniform"] = "importance"
    """Which of cache plus fresh candidates survive a refresh (nscaching)."""
    temperature: float = 1.0
    """Divides the scores before the softmax of an importance refresh (nscaching)."""
    lazy: int = 0
    """Refresh the cache only in one epoch out of this plus one (nscaching)."""
    refresh_side: Literal["both", "drawn"] = "both"
    """Which caches of a triple are refreshed: both, or the cache of the drawn side (nscaching)."""
    shared_candidates: bool = False
    """Whether all keys of a batch and side share the fresh candidates (nscaching)."""
    candidate_rows: Literal["float32", "bfloat16"] = "float32"
    """Precision of the entity rows that a refresh scores (nscaching)."""
    side: Literal["bernoulli", "uniform"] = "bernoulli"
    """Head or tail: by tph/(tph+hpt) of the relation, or a fair coin (nscaching, kbgan, igan)."""
    candidates: Literal["set", "slots"] = "set"
    """Candidates as a set, each entity once (the paper), or as slots with repeats (its code)."""
    generator: str = "TransE"
    """Scoring function that makes the negatives (kbgan, igan)."""
    generator_lr: float = 0.001
    """Learning rate of the generator (kbgan, igan)."""
    generator_pretrain: str = ""
    """Run folder whose parameters the generator starts from; empty: none (kbgan, igan)."""
    adversarial: float = 1.0
    """Negatives are weighed by softmax(this · score) (self-adversarial)."""
    filter_known: bool = False
    """Keep known training triples out of the negatives (all samplers)."""
    validate_every: int = 10
    """Epochs between rankings of the validation triples; 0: never."""
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
        for name, hint in _hints(type(self)).items():
            object.__setattr__(self, name, check_type(flag(name), hint, getattr(self, name)))
        least = {"seed": 0, "lazy": 0, "validate_every": 0, "patience": 0, "threads": 0}
        least |= {"dim": 1, "epochs": 1, "batch_size": 1, "n1": 1, "n2": 1}
        if self.sampler.casefold() == "none" and (self.negatives or self.filter_known):
            what = flag("negatives") if self.negatives else flag("filter_known")
            raise UserError(f"{flag('sampler')} none draws no negatives: leave out {what}")
        if self.negatives is not None:
            least["negatives"] = 1
        for name, bound in least.items():
            value, most = getattr(self, name), MOST_THREADS if name == "threads" else MOST
            if not bound <= value <= most:
                kind, limit = ("least", bound) if value < bound else ("most", most)
                raise UserError(f"{flag(name)} must be at {kind} {limit}, not {value}")
        if self.patience and not self.validate_every:
            raise UserError(
                f"{flag('patience')} needs validation: give {flag('validate_every')} too"
            )
        for name in ("lr", "temperature", "generator_lr", "adversarial"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise UserError(f"{flag(name)} must be a positive number, not {value}")
        for name in ("margin", "penalty"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise UserError(f"{flag(name)} must be zero or a positive number, not {value}")

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "configuration") -> TrainConfig:
        """Build a configuration from plain values; errors name ``where``, the key and the value."""
        return from_values(cls, values, where)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, without those that are left open."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }


def from_values(cls: type[Config], values: dict[str, Any], where: str) -> Config:
    """Build a dataclass from plain values; errors name ``where``, the key and the value."""
    hints = _hints(cls)
    for key in values:
        if key not in hints:
            raise UserError(f"{where}: {unknown('key', key, hints)}")
    checked = {
        key: check_type(f"{where}: {key}", hints[key], value) for key, value in values.items()
    }
    try:
        return cls(**checked)
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
    """Read a TOML file, or raise a UserError that names the file and the place."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_TOML + 1)
        if len(data) > MOST_TOML:
            raise ValueError(f"larger than {MOST_TOML:,} bytes")
        return tomllib.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot read it: {reason}") from error


def write_toml(path: Path, values: dict[str, Any]) -> None:
    """Write plain values (and tables of them) as TOML."""
    import tomli_w

    path.write_text(tomli_w.dumps(values), encoding="utf-8")
