"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels._base import (
    CHOICE,
    ENTITY,
    HEAD_FRESH,
    HEAD_NOISE,
    SLOT,
    TAIL_FRESH,
    TAIL_NOISE,
    CacheSide,
    IsKnown,
    Kernels,
    Known,
    Refresh,
)
from nscaching.kernels.all_entities import KVsAll, OneVsAll
from nscaching.kernels.dispatch import choose_kernels
from nscaching.kernels.learner import AutogradLearner, Learner, Learning

__all__ = [
    "CHOICE",
    "ENTITY",
    "HEAD_FRESH",
    "HEAD_NOISE",
    "SLOT",
    "TAIL_FRESH",
    "TAIL_NOISE",
    "AutogradLearner",
    "CacheSide",
    "IsKnown",
    "KVsAll",
    "Kernels",
    "Known",
    "Learner",
    "Learning",
    "OneVsAll",
    "Refresh",
    "choose_kernels",
]
