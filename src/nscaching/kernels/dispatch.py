"""One place that says which path runs, and why."""

from __future__ import annotations

import importlib.util
import os

import torch

from nscaching.errors import UserError
from nscaching.kernels._base import Kernels

__all__ = ["choose_kernels"]


def choose_kernels(name: str, device: torch.device) -> Kernels:
    """Return the path that "auto", "reference", "numba" or "triton" stands for on a device."""
    if name == "reference":
        return Kernels()
    fitting = "triton" if device.type == "cuda" else "numba"
    if name == "triton" and os.environ.get("TRITON_INTERPRET") == "1":
        fitting = "triton"
    if name not in ("auto", fitting):
        where = "the CPU" if device.type == "cpu" else "a GPU"
        raise UserError(
            f"--kernels {name} does not run on {where}; use auto, reference or {fitting}"
        )
    if importlib.util.find_spec(fitting) is None:
        if name == fitting:
            raise UserError(f"--kernels {name}: {name} is not installed (pip install {name})")
        return Kernels(f"{fitting} is not installed")
    reason = "asked for" if name == fitting else f"the device is {device.type}"
    if fitting == "numba":
        from nscaching.kernels.numba_kernels import NumbaKernels

        return NumbaKernels(reason)
    from nscaching.kernels.triton_kernels import TritonKernels

    return TritonKernels(reason)
