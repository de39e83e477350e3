"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels.batch import Known
from nscaching.kernels.dispatch import choose_device, choose_kernels
from nscaching.kernels.learner import AutogradLearner, KVsAll, Learner, OneVsAll
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.random import CHOICE, ENTITY
from nscaching.kernels.reference import CacheAccess, CacheSide, Kernels

__all__ = [
    "CHOICE", "ENTITY", "AutogradLearner", "CacheAccess", "CacheSide", "KVsAll", "Kernels", "Known",
    "Learner", "Learning", "OneVsAll", "choose_device", "choose_kernels",
]  # fmt: skip
