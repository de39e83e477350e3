"""Negative samplers; ``SAMPLERS`` finds them by name."""

from nscaching.samplers._base import SAMPLERS, Negatives, Sampler

__all__ = ["SAMPLERS", "Negatives", "Sampler"]
