"""What ``train`` and ``resume`` share: the listener, and where and how often a run is saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from nscaching.errors import UserError, flag
from nscaching.kernels.cpu.threads import torch_threads
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import RunFolder
from nscaching.training.listener import Listener

CHECKPOINT_SECONDS = 60.0
"""Seconds between checkpoints, unless the caller asks for others."""

SUBNORMAL = 1e-40  # as a 32-bit number


@dataclass
class Session:
    """One call of ``train`` or ``resume``: while it is entered, no other process has its folder."""

    listener: Listener = field(default_factory=Listener)
    every: float = CHECKPOINT_SECONDS
    """Seconds between checkpoints; 0: a checkpoint only when the run is stopped."""
    folder: RunFolder | None = None
    alone: Checkpoints | None = None
    """Checkpoints of a run without a folder: they hold the records too."""

    def __post_init__(self) -> None:
        if not 0 <= self.every < float("inf"):
            raise UserError(
                f"{flag('checkpoint_every')} must be zero or more seconds, not {self.every}"
            )

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Where checkpoints are written, if anywhere."""
        return self.alone if self.folder is None else self.folder.checkpoints

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from the place of the run; the folder locks itself when opened."""
        lock = None if self.alone is None else self.alone.lock()
        try:
            yield
        finally:
            if self.folder is not None:
                self.folder.release()
            if lock is not None:
                lock.release()


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """Give torch some threads (0: those it has), and make subnormal numbers zero; undo both after.

    With subnormal numbers, arithmetic on a CPU is a hundred times slower.
    """
    flushed = (torch.tensor(SUBNORMAL) * 1).item() == 0  # torch tells only what it computes
    torch.set_flush_denormal(True)
    try:
        with torch_threads(threads):
            yield
    finally:
        torch.set_flush_denormal(flushed)
