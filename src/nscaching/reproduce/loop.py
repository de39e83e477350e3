"""Trains what is missing, one cell after the other."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nscaching import __version__, work
from nscaching.checkpoint import Checkpoints
from nscaching.errors import UserError
from nscaching.evaluation import METRICS
from nscaching.graph import KnowledgeGraph
from nscaching.progress import SeriesDisplay, duration
from nscaching.reproduce import markdown
from nscaching.reproduce.asked import Asked
from nscaching.reproduce.cells import STARTS_FROM, Cell, Training, plan
from nscaching.reproduce.store import Line, Store, cell
from nscaching.reproduce.tables import Row, Summary, rows, summaries
from nscaching.reproduce.task import Task
from nscaching.run import Run
from nscaching.run_folder import CARD
from nscaching.signals import Signals
from nscaching.trainer import Record, choose_device
from nscaching.training import train

__all__ = ["Outcome", "reproduce"]

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What there is in the end."""

    task: Task
    lines: Path
    table: Path
    sources: list[Path] = field(default_factory=list)
    """The files that the table was made from: a training for one table may serve another."""
    rows: list[Row] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    trained: int = 0
    left: int = 0
    failed: list[str] = field(default_factory=list)


def reproduce(
    task: Task,
    asked: Asked,
    out: Path,
    say: Say,
    time_limit: float = 0.0,
    table_only: bool = False,
) -> Outcome:
    """Train the cells that are asked for and not yet done, and write the table of all there are.

    ``say`` hears a sentence about each cell. With a time limit (in seconds) no training is begun
    that would end after it, judged by those before.
    """
    wanted, store = plan(task, asked), Store(out, task)
    outcome = Outcome(task, store.path, out / f"{task.name}.md")
    markdown.check_own(outcome.table)

    def write() -> None:
        outcome.rows, outcome.sources = rows(store, wanted), list(store.sources)
        outcome.summaries = summaries(task, outcome.rows)
        page = markdown.markdown(store, outcome.rows, outcome.summaries)
        markdown.write(outcome.table, page)

    if table_only and not store.lines:
        raise UserError(f"{store.path}: there are no results yet to make a table of")
    if not table_only:
        with store.adding():
            try:
                _train_missing(wanted, store, outcome, say, time_limit, write)
            except KeyboardInterrupt:
                kept = f"{sum(map(store.has, wanted))} of {len(wanted)} trainings are kept"
                say(f"{kept} in {store.path}; the same command goes on from there")
                raise
    write()
    return outcome


def _train_missing(
    wanted: Sequence[Training],
    store: Store,
    outcome: Outcome,
    say: Say,
    time_limit: float,
    write: Callable[[], None],
) -> None:
    missing = _missing(wanted, store)
    say(f"{len(wanted)} trainings in all, {len(wanted) - len(missing)} of them done already")
    graphs: dict[str, KnowledgeGraph] = {}
    began = time.monotonic()
    for number, training in enumerate(missing, 1):
        soon = _expected([training], store)
        passed = time.monotonic() - began
        if time_limit and soon is not None and passed + soon > time_limit:
            outcome.left = len(missing) - number + 1
            say(f"stopped after {duration(passed)}: the next would take about {duration(soon)}")
            return
        place = f"{number}/{len(missing)} {training.cell}"
        data = training.cell.data
        graph = graphs[data] = graphs.get(data) or work.load(data)
        unfinished = _unfinished(store, training)
        if unfinished.files():
            say(f"{place}: goes on where it was stopped")
        name = f"{place}{_left(missing[number - 1 :], store)}"
        try:
            line = _train(training, graph, store, name, unfinished, say)
        except UserError as error:  # such as a loss that is no number: others may still learn
            outcome.failed.append(f"{training.cell}: {error}")
            say(f"{place}: failed: {error}")
            continue
        store.add(line)
        _clear(unfinished)
        outcome.trained += 1
        write()
        say(f"{place}: {_figures(store.task, line)}{_left(missing[number:], store)}")
        if torch.cuda.is_available():
            gc.collect()  # what a finished training holds in cycles is memory of the GPU


def _left(trainings: Sequence[Training], store: Store) -> str:
    seconds = _expected(trainings, store)
    return f"; about {duration(seconds)} left for all" if trainings and seconds is not None else ""


def _missing(wanted: Sequence[Training], store: Store) -> list[Training]:
    """Return what is to be trained: also the starts whose run folders are gone."""
    new = {training for training in wanted if not store.has(training)}
    starts = {start for training in new for start in training.needs}
    gone = {start for start in starts if not (_folder(store, start) / CARD).is_file()}
    return [training for training in wanted if training in new | gone]


def _folder(store: Store, training: Training) -> Path:
    return store.folder / "pretrain" / training.folder


def _unfinished(store: Store, training: Training) -> Checkpoints:
    """Return the checkpoints of a training that may have been stopped."""
    return Checkpoints(store.folder / "unfinished" / training.folder)


def _clear(unfinished: Checkpoints) -> None:
    """Remove what a finished training needs no more, and the folders that are then empty."""
    if unfinished.folder.is_dir():
        unfinished.remove()
        for folder in (unfinished.folder.parent, unfinished.folder.parent.parent):
            if not any(folder.iterdir()):
                folder.rmdir()


def _expected(trainings: Sequence[Training], store: Store) -> float | None:
    """Return the seconds that trainings will take, by the latest of the most similar ones.

    None: nothing was trained on this device yet.
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
        total += pace * training.config.epochs + max(0.0, around)
    return total


def _alike(device: str, cell: Cell) -> list[tuple[str, ...]]:
    """Return what similar trainings have in common, the most similar first."""
    data, model, sampler, *_ = cell
    return [(device, data, model, sampler), (device, data, sampler), (device, data), (device,)]


def _train(
    training: Training,
    graph: KnowledgeGraph,
    store: Store,
    name: str,
    unfinished: Checkpoints,
    say: Say,
) -> Line:
    """Train and measure one cell; what others start from becomes a run folder."""
    paths = [
        str(_folder(store, start)) if start else ""
        for start in (training.start, training.generator_start)
    ]
    config = dataclasses.replace(training.config, pretrain=paths[0], generator_pretrain=paths[1])
    began = time.perf_counter()
    heard: list[Record] = []

    def observe(record: Record) -> None:
        heard.append(record)
        display.observe(record)

    with SeriesDisplay(name, config) as display, Signals() as stop:
        run = train(
            graph, config, checkpoints=unfinished.folder.parent, observe=observe,
            progress=display.progress, stop=stop, say=say,
        )  # fmt: skip
    measured = _measure(run, store.task)
    before = sum(record["seconds"] for record in run.history[: len(run.history) - len(heard)])
    seconds = before + time.perf_counter() - began
    if training.cell.sampler in STARTS_FROM:
        run.save(_folder(store, training), overwrite=True)
    return {
        **training.cell._asdict(),
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


def _epoch_seconds(run: Run) -> float:
    """Return the seconds of an epoch and its share of a validation; the first ones compile."""
    epochs = [record["seconds"] for record in run.history if "split" not in record]
    rankings = [r["seconds"] for r in run.history if r.get("split") == "valid"]
    validation = statistics.median(rankings) if rankings else 0.0
    return float(statistics.median(epochs) + validation * len(rankings) / len(epochs))


def _measure(run: Run, task: Task) -> dict[str, dict[str, Any]]:
    """Return all figures of validation and test triples."""
    classified = task.measures[0].name == "accuracy" or bool(run.graph.labelled)
    found: dict[str, dict[str, Any]] = {}
    for split in ("valid", "test"):
        result = run.result(split) or {}
        found[split] = {name: value for name, value in result.items() if name in METRICS}
        if classified:
            found[split]["accuracy"] = run.classify(split)["accuracy"]
    return found


def _figures(task: Task, line: Line) -> str:
    first = task.measures[0]
    value = line["test"][first.name] * first.scale
    seconds = f"{line['train_seconds']:.1f} s of training, {line['seconds']:.1f} s in all"
    kernels = f"{line['record']['kernels']} kernels"
    return f"test {first.heading} {value:.{first.digits}f}, {seconds}, {kernels}"


@functools.cache
def device_name(device: str) -> str:
    """Name the hardware that computes."""
    if choose_device(device).type == "cuda":
        return str(torch.cuda.get_device_name())
    found = Path("/proc/cpuinfo")
    lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
