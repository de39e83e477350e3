"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels.all_entities import KVsAll, OneVsAll
from nscaching.kernels.batch import Known
from nscaching.kernels.dispatch import choose_device, choose_kernels
from nscaching.kernels.learner import AutogradLearner, Learner
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import CHOICE, ENTITY, CacheAccess, CacheSide, Kernels

__all__ = [
    "CHOICE", "ENTITY", "AutogradLearner", "CacheAccess", "CacheSide", "KVsAll", "Kernels", "Known",
    "Learner", "Learning", "OneVsAll", "choose_device", "choose_kernels",
]  # fmt: skip
