"""Scoring functions, one file each; ``MODELS`` finds them by name."""

from nscaching.models._base import DIVERGED, MODELS, Form, Model, build, finite
from nscaching.models._distances import MODULI, Distances, plain_distances

__all__ = [
    "DIVERGED", "MODELS", "MODULI", "Distances", "Form", "Model", "build", "finite",
    "plain_distances",
]  # fmt: skip
