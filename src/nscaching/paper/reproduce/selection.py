"""Which cells of a table to make: a dataclass whose fields are flags, as those of TrainConfig."""

from dataclasses import dataclass
from typing import Literal

from nscaching.errors import check_bounds

Protocol = Literal["cache", "paper"]
Start = Literal["scratch", "pretrain"]


@dataclass(frozen=True)
class Selection:
    """Which cells of a table to make, and how to train them."""

    models: tuple[str, ...] = ()
    """Scoring functions; none named: those of the paper's table."""
    data: tuple[str, ...] = ()
    """Data sets; none named: those of the paper's table."""
    samplers: tuple[str, ...] = ("bernoulli", "kbgan", "nscaching")
    """Negative samplers; none named: these three. Also pretrained: the short trainings that
    pretrained starts come from."""
    starts: tuple[Start, ...] = ("scratch", "pretrain")
    """Start from Xavier initialization, or from some epochs of Bernoulli sampling (nscaching,
    kbgan, igan); none named: both."""
    protocol: tuple[Protocol, ...] = ("paper", "cache")
    """Hyperparameters tuned under Bernoulli sampling and kept for all samplers; or tuned for the
    cache (nscaching, and bernoulli beside it); none named: both."""
    seeds: int = 3
    """Trainings of each cell: seeds 1, 2, …"""
    epochs: int = 0
    """Epochs of every training, to try it; 0: as in the paper, 3,000 for bernoulli, else 1,000."""
    pretrain_epochs: int = 100
    """Epochs of Bernoulli sampling before a pretrained start."""
    validate_every: int = 10
    """Epochs between rankings of the validation triples, which choose the best epoch."""
    presets: str = ""
    """Folder of presets to use instead of those that come with the package."""
    trust: bool = False
    """Run code from outside the package that a preset of that folder names."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    def __post_init__(self) -> None:
        least = {"seeds": 1, "epochs": 0, "pretrain_epochs": 1, "validate_every": 1}
        for name, bound in least.items():
            check_bounds(name, getattr(self, name), bound)
