"""Scoring functions, one file each; ``MODELS`` finds them by name."""

from nscaching.models.arithmetic import DIVERGED, MODULI, Distances, finite, plain_distances
from nscaching.models.base import MODELS, Form, Model, build

__all__ = [
    "DIVERGED", "MODELS", "MODULI", "Distances", "Form", "Model", "build", "finite",
    "plain_distances",
]  # fmt: skip
