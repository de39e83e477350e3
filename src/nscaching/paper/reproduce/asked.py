"""What is asked of a table: a dataclass whose fields are flags, as those of TrainConfig are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nscaching.errors import UserError, flag
from nscaching.paper.presets import Variant

__all__ = ["Asked", "Start"]

Start = Literal["scratch", "pretrain"]


@dataclass(frozen=True)
class Asked:
    """Which cells of a table, and how to train them."""

    models: tuple[str, ...] = ()
    """Scoring functions; none named: those of the paper's table."""
    data: tuple[str, ...] = ()
    """Data sets; none named: those of the paper's table."""
    samplers: tuple[str, ...] = ("bernoulli", "kbgan", "nscaching")
    """Ways to negatives; none named: these three. Also pretrained, the models that others start
    from."""
    starts: tuple[Start, ...] = ("scratch", "pretrain")
    """A start by Xavier, or from some epochs of Bernoulli sampling (nscaching, kbgan, igan);
    none named: both."""
    protocol: tuple[Variant, ...] = ("paper", "cache")
    """Hyperparameters tuned under Bernoulli and kept for all; or for the cache (nscaching, and
    bernoulli beside it); none named: both."""
    seeds: int = 3
    """How many trainings make a row: seeds 1, 2, …"""
    epochs: int = 0
    """Epochs of every training, to try it; 0: as in the paper, 3,000 for bernoulli, else 1,000."""
    pretrain_epochs: int = 100
    """Epochs of Bernoulli sampling that a pretrained start has had."""
    validate_every: int = 10
    """Epochs between rankings of the validation triples, which choose the best epoch."""
    presets: str = ""
    """Folder of presets to take instead of those that come with the package."""
    trust: bool = False
    """Run code from outside the package that a preset of that folder names."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    def __post_init__(self) -> None:
        least = {"seeds": 1, "epochs": 0, "pretrain_epochs": 1, "validate_every": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value < bound:
                raise UserError(f"{flag(name)} must be at least {bound}, not {value}")
