"""How long trainings take here: measured, and expected of those to come."""

from __future__ import annotations

import functools
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from nscaching.kernels.dispatch import choose_device
from nscaching.paper.reproduce.cells import Cell, Training
from nscaching.paper.reproduce.store import Line, Store, cell
from nscaching.paper.reproduce.unfinished import trained_epochs, unfinished
from nscaching.runs.run import Run

__all__ = ["device_name", "epoch_seconds", "expected_seconds"]


def expected_seconds(trainings: Sequence[Training], store: Store) -> float | None:
    """Return the seconds that trainings will take, by the latest of the most similar ones.

    Of one that was stopped what is left. None: nothing was trained on this device yet.
    """
    latest: dict[tuple[str, ...], Line] = {}
    for line in store.lines:
        latest |= dict.fromkeys(_alike(line["device"], cell(line)), line)
    total = 0.0
    for training in trainings:
        alike = _alike(device_name(training.config.device), training.cell)
        similar = [latest[key] for key in alike if key in latest]
        if not similar:
            return None
        pace, epochs = similar[0]["epoch_seconds"], similar[0]["epochs"]
        around = similar[0]["seconds"] - pace * epochs  # such as compiling: once, not every epoch
        left = training.config.epochs - trained_epochs(unfinished(store, training))
        total += pace * left + max(0.0, around)
    return total


def _alike(device: str, cell: Cell) -> list[tuple[str, ...]]:
    """Return what similar trainings have in common, the most similar first."""
    data, model, sampler, *_ = cell
    return [(device, data, model, sampler), (device, data, sampler), (device, data), (device,)]


def epoch_seconds(run: Run) -> float:
    """Return the seconds of an epoch and its share of a validation; the first ones compile."""
    epochs = [record["seconds"] for record in run.history if "split" not in record]
    rankings = [r["seconds"] for r in run.history if r.get("split") == "valid"]
    validation = statistics.median(rankings) if rankings else 0.0
    return float(statistics.median(epochs) + validation * len(rankings) / len(epochs))


@functools.cache
def device_name(device: str) -> str:
    """Name the hardware that computes."""
    if choose_device(device).type == "cuda":
        return str(torch.cuda.get_device_name())
    found = Path("/proc/cpuinfo")
    lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
