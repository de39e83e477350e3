"""Negative samplers; ``SAMPLERS`` finds them by name."""

from nscaching.samplers.base import SAMPLERS, Negatives, Sampler

__all__ = ["SAMPLERS", "Negatives", "Sampler"]
