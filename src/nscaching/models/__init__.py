"""Scoring functions, one file each; ``MODELS`` finds them by name."""

from nscaching.models._base import MODELS, Form, Model, finite

__all__ = ["MODELS", "Form", "Model", "finite"]
