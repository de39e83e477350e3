"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs."""

from nscaching.kernels._base import CacheSide, IsKnown, Kernels, Known
from nscaching.kernels.dispatch import choose_kernels
from nscaching.kernels.learner import Learner, Learning

__all__ = ["CacheSide", "IsKnown", "Kernels", "Known", "Learner", "Learning", "choose_kernels"]
