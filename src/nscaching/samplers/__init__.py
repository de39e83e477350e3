"""Negative samplers; ``SAMPLERS`` finds them by name."""

from nscaching.kernels.batch import Negatives
from nscaching.samplers.base import SAMPLERS, Sampler

__all__ = ["SAMPLERS", "Negatives", "Sampler"]
