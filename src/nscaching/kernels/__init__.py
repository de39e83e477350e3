"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels._base import (
    HEAD_FRESH,
    HEAD_NOISE,
    TAIL_FRESH,
    TAIL_NOISE,
    CacheSide,
    IsKnown,
    Kernels,
    Known,
    Refresh,
)
from nscaching.kernels.dispatch import choose_kernels
from nscaching.kernels.learner import AutogradLearner, Learner, Learning

__all__ = [
    "HEAD_FRESH",
    "HEAD_NOISE",
    "TAIL_FRESH",
    "TAIL_NOISE",
    "AutogradLearner",
    "CacheSide",
    "IsKnown",
    "Kernels",
    "Known",
    "Learner",
    "Learning",
    "Refresh",
    "choose_kernels",
]
