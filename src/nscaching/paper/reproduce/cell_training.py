"""Trains one cell, from its checkpoint if it was stopped; estimates the time of cells to come."""

import datetime
import functools
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.evaluation.ranks import METRICS
from nscaching.kernels import choose_device
from nscaching.paper.reproduce.plan import STARTS_FROM, Cell, Training
from nscaching.paper.reproduce.results import Line, Results
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import Record
from nscaching.runs.run import Run
from nscaching.training.listener import Listener
from nscaching.training.train import train


class ReproduceListener(Listener):
    """The callbacks of ``reproduce``, which may stop the work. Override the methods you need."""

    where = ""
    """The process of the training that begins, such as GPU 1; empty for this process."""

    @property
    def late(self) -> bool:
        """Whether a time limit stops the work: then ``reproduce`` returns instead of raising."""
        return False

    def load(self, data: str) -> KnowledgeGraph:
        return KnowledgeGraph.load(data)

    @contextmanager
    def training(self, name: str, config: TrainConfig) -> Iterator[Listener | None]:
        """Enclose one training run; what this yields listens to the run instead of this object."""
        yield None


def train_cell(
    training: Training,
    graph: KnowledgeGraph,
    results: Results,
    listener: Listener,
) -> Line:
    """Train and measure one cell; a training that others start from becomes a run folder."""
    folders = [str(results.start_folder(start)) for start in training.starts]
    starts: dict[str, Any] = dict(zip(("pretrain", "generator_pretrain"), folders, strict=False))
    config = training.config.changed(**starts)
    checkpoints = results.checkpoints(training)
    before, began = _recorded(checkpoints), time.perf_counter()
    folder = checkpoints.folder.parent
    run = train(graph, config, checkpoints=folder, listener=listener)
    measured: dict[str, dict[str, Any]] = {}
    for split in ("valid", "test"):
        result = run.result(split) or {}
        measured[split] = {name: value for name, value in result.items() if name in METRICS}
        if graph.labelled or "accuracy" in (measure.name for measure in results.table.measures):
            measured[split]["accuracy"] = run.classify(split)["accuracy"]
    seconds = sum(record["seconds"] for record in before) + time.perf_counter() - began
    if training.cell.sampler in STARTS_FROM:
        run.save(results.start_folder(training), overwrite=True)
    return {
        **training.cell._asdict(),
        "seed": config.seed,
        **{part: settings.to_dict() for part, settings in training.configs.items()},
        "epochs": sum("split" not in record for record in run.history),
        "best_epoch": run.best_epoch,
        **measured,
        "train_seconds": run.train_seconds,
        "epoch_seconds": _epoch_seconds(run),
        "seconds": seconds,
        "device": device_name(config.device),
        "record": run.record,
        "data_fingerprint": graph.fingerprint,
        "nscaching": __version__,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _recorded(checkpoints: Checkpoints) -> list[Record]:
    state = checkpoints.newest(lambda damage: None, needed=False)  # train() tells of damage
    return list(state["history"]) if state else []


def _epoch_seconds(run: Run) -> float:
    """Return the seconds of an epoch with its share of a validation; the first ones compile."""
    epochs = [record["seconds"] for record in run.history if "split" not in record]
    rankings = [r["seconds"] for r in run.history if r.get("split") == "valid"]
    validation = statistics.median(rankings) if rankings else 0.0
    return float(statistics.median(epochs) + validation * len(rankings) / len(epochs))


@functools.cache
def device_name(device: str) -> str:
    if choose_device(device).type == "cuda":
        return str(torch.cuda.get_device_name())
    found = Path("/proc/cpuinfo")
    lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def expected_seconds(trainings: Sequence[Training], results: Results) -> float | None:
    """Return the seconds that trainings will take, by the latest of the most similar results.

    Of a training that was stopped the rest counts. None: this device has trained nothing yet.
    """
    latest: dict[tuple[str, ...], Line] = {}
    for result in results.list:
        latest |= dict.fromkeys(_alike(result.line["device"], result.cell), result.line)
    total = 0.0
    for training in trainings:
        alike = _alike(device_name(training.config.device), training.cell)
        similar = next((latest[key] for key in alike if key in latest), None)
        if similar is None:
            return None
        pace = similar["epoch_seconds"]
        around = similar["seconds"] - pace * similar["epochs"]  # once, such as compiling
        done = sum("split" not in record for record in _recorded(results.checkpoints(training)))
        total += pace * (training.config.epochs - done) + max(0.0, around)
    return total


def _alike(device: str, cell: Cell) -> list[tuple[str, ...]]:
    """Return what similar trainings have in common, the most similar first."""
    data, model, sampler = cell[:3]
    return [(device, data, model, sampler), (device, data, sampler), (device, data), (device,)]
