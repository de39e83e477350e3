"""Trainings that were stopped: the checkpoints that they go on from."""

from __future__ import annotations

import contextlib
import json

from nscaching.errors import UserError
from nscaching.files import regular_file, writing
from nscaching.paper.reproduce.cells import Training
from nscaching.paper.reproduce.store import Store
from nscaching.runs.checkpoints import Checkpoints

__all__ = ["clear", "trained_epochs", "unfinished"]


def unfinished(store: Store, training: Training) -> Checkpoints:
    """Return the checkpoints of a training that may have been stopped."""
    return Checkpoints(store.place("unfinished", training))


def clear(checkpoints: Checkpoints) -> None:
    """Remove what a finished training needs no more, and the folders that are then empty."""
    run = checkpoints.folder.parent
    if checkpoints.folder.is_dir():
        with writing(checkpoints.folder):
            checkpoints.remove()
    for folder in (run, run.parent):
        with contextlib.suppress(OSError):  # it is not there, or not empty
            folder.rmdir()


def trained_epochs(checkpoints: Checkpoints) -> int:
    """Return how many epochs are done; of a checkpoint only the head is read, which knows it."""
    from safetensors import SafetensorError, safe_open

    for file in reversed(checkpoints.files()):
        try:
            with safe_open(regular_file(file), framework="pt") as opened:
                return int(json.loads(opened.metadata()["state"])["trained"])
        except (UserError, OSError, SafetensorError, KeyError, TypeError, ValueError):
            continue  # damaged: training will say so
    return 0
