"""Scoring functions, one file for each family; ``MODELS`` finds them by name."""

from nscaching.models.arithmetic import MODULI, Distances, finite, plain_distances
from nscaching.models.base import MODELS, Model, build
from nscaching.models.contract import Form

__all__ = [
    "MODELS", "MODULI", "Distances", "Form", "Model", "build", "finite",
    "plain_distances",
]  # fmt: skip
