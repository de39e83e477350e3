"""Scoring functions, one file each; ``MODELS`` finds them by name."""

from nscaching.models.base import DIVERGED, MODELS, Form, Model, build, finite
from nscaching.models.distances import MODULI, Distances, plain_distances

__all__ = [
    "DIVERGED", "MODELS", "MODULI", "Distances", "Form", "Model", "build", "finite",
    "plain_distances",
]  # fmt: skip
