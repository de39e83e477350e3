"""Rows of a cache elsewhere than on the device: in host memory, or in a file on the disk."""

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from nscaching.errors import UserError

NewRows = Callable[[int, int], Tensor]
"""(rows, N1) → memory for the rows, int32, which need not be on the device."""

MAPPED = 2  # of cudaHostRegister: kernels may read and write the memory
PIECE = 1 << 24  # bytes that are written at once


def in_host_memory(device: torch.device) -> NewRows:
    """Return what makes rows in host memory, which kernels on a GPU reach."""

    def new_rows(count: int, n1: int) -> Tensor:
        rows = torch.empty(count, n1, dtype=torch.int32)
        if device.type == "cuda" and rows.nbytes:
            # PyTorch's own pinned memory would be rounded up to a power of two.
            cuda, at = torch.cuda.cudart(), rows.data_ptr()
            if error := int(cuda.cudaHostRegister(at, rows.nbytes, MAPPED)):
                size = f"{rows.nbytes / 2**30:,.1f} GiB"
                raise UserError(f"the GPU cannot reach {size} of host memory: CUDA error {error}")
            weakref.finalize(rows, cuda.cudaHostUnregister, at).atexit = False
        return rows

    return new_rows


def on_disk(folder: Path) -> NewRows:
    """Return what makes rows in a file of a folder; the file ends with the process.

    The file has no name, so that nobody else can shorten it, and nothing is left of a process that
    was killed. All its bytes are reserved here: a full disk is an error now, not in a later step.
    """

    def new_rows(count: int, n1: int) -> Tensor:
        size = max(1, 4 * count * n1)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                _reserve(file.fileno(), size)
                rows = torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            wanted = f"{size / 2**30:,.1f} GiB for the rows of a cache"
            raise UserError(f"{folder}: cannot reserve {wanted}: {reason}") from error
        return rows[: 4 * count * n1].view(torch.int32).view(count, n1)

    return new_rows


def _reserve(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for begin in range(0, size, PIECE):  # macOS
        os.write(file, bytes(min(PIECE, size - begin)))
