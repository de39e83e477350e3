"""The hot operations: plain torch, and twins compiled for CPUs and for GPUs.

``choose_kernels`` is the one place that says which path runs, and why.
"""

import os

import torch

from nscaching.errors import UserError, flag
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import CacheAccess, CacheSide, Contrast, Rivals
from nscaching.kernels.learner import AutogradLearner, KVsAll, OneVsAll
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import Kernels
from nscaching.kernels.state import State, join, part

__all__ = [
    "AutogradLearner",
    "Batch",
    "CacheAccess",
    "CacheSide",
    "Contrast",
    "KVsAll",
    "Kernels",
    "Known",
    "Learning",
    "Negatives",
    "OneVsAll",
    "Rivals",
    "State",
    "choose_device",
    "choose_kernels",
    "join",
    "part",
]  # fmt: skip


def choose_device(name: str) -> torch.device:
    """Return the device that "auto", "cpu" or "cuda" stands for here."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise UserError(
            f"{flag('device')} cuda: PyTorch finds no CUDA device here; use cpu or auto"
        )
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def choose_kernels(name: str, device: torch.device) -> Kernels:
    """Return the path that "auto", "reference", "numba" or "triton" stands for on a device.

    Where the fitting one cannot run, auto takes the reference path and says why.
    """
    if name == "reference":
        return Kernels()
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    on_cpu = device.type == "cpu" and not (name == "triton" and interpreted)
    fitting = "numba" if on_cpu else "triton"
    if name not in ("auto", fitting):
        where = "the CPU" if device.type == "cpu" else "a GPU"
        raise UserError(
            f"{flag('kernels')} {name} does not run on {where}; use auto, reference or {fitting}"
        )
    reason = "asked for" if name == fitting else f"the device is {device.type}"
    try:
        if on_cpu:
            from nscaching.kernels.cpu.kernels import NumbaKernels

            return NumbaKernels(reason)
        from nscaching.kernels.gpu.kernels import TritonKernels

        kernels = TritonKernels(reason)
        kernels.try_out(device)
        return kernels
    except ModuleNotFoundError:
        problem = f"{fitting} is not installed (pip install {fitting})"
    except Exception as error:  # these two can fail in many ways: versions, compilers, drivers
        problem = f"{fitting} does not work here: {' '.join(str(error).split())[:200]}"
    if name == fitting:
        raise UserError(f"{flag('kernels')} {name}: {problem}")
    return Kernels(problem)
