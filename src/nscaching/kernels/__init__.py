"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels.all_entities import KVsAll, OneVsAll
from nscaching.kernels.dispatch import choose_device, choose_kernels
from nscaching.kernels.learner import AutogradLearner, Learner
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import (
    CHOICE,
    ENTITY,
    HEAD_FRESH,
    HEAD_NOISE,
    TAIL_FRESH,
    TAIL_NOISE,
    CacheAccess,
    CacheSide,
    IsKnown,
    Kernels,
    Known,
)

__all__ = [
    "CHOICE",
    "ENTITY",
    "HEAD_FRESH",
    "HEAD_NOISE",
    "TAIL_FRESH",
    "TAIL_NOISE",
    "AutogradLearner",
    "CacheAccess",
    "CacheSide",
    "IsKnown",
    "KVsAll",
    "Kernels",
    "Known",
    "Learner",
    "Learning",
    "OneVsAll",
    "choose_device",
    "choose_kernels",
]
