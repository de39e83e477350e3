"""Scoring functions, one file each; ``MODELS`` finds them by name."""

from nscaching.models._base import (
    DIVERGED,
    MODELS,
    MODULI,
    Distances,
    Form,
    Model,
    build,
    finite,
    plain_distances,
)

__all__ = [
    "DIVERGED", "MODELS", "MODULI", "Distances", "Form", "Model", "build", "finite",
    "plain_distances",
]  # fmt: skip
