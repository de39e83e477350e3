"""Trains what is missing, one cell after the other."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nscaching import __version__
from nscaching.cli.loading import load_graph
from nscaching.cli.progress import SeriesDisplay, duration
from nscaching.cli.signals import Signals
from nscaching.cli.watched_training import progress_and_signals
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import Stopped, UserError
from nscaching.evaluation.ranking import METRICS
from nscaching.paper.reproduce import markdown
from nscaching.paper.reproduce.asked import Asked
from nscaching.paper.reproduce.cells import STARTS_FROM, Training, plan
from nscaching.paper.reproduce.pace import device_name, epoch_seconds, expected_seconds
from nscaching.paper.reproduce.store import Line, Store
from nscaching.paper.reproduce.tables import Row, Summary, rows, summaries
from nscaching.paper.reproduce.task import Task
from nscaching.paper.reproduce.unfinished import clear, unfinished
from nscaching.runs.folder import Record
from nscaching.runs.layout import CARD
from nscaching.runs.run import Run
from nscaching.training.train import train

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
    left_out: dict[str, int] = field(default_factory=dict)
    """Trainings on other data than the table is of, by data set."""
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

    ``say`` hears a sentence about each cell. After a time limit (in seconds) the training that runs
    is stopped; the next call goes on with it.
    """
    wanted, store = plan(task, asked), Store(out, task)
    outcome = Outcome(task, store.path, out / f"{task.name}.md")
    markdown.check_own(outcome.table)

    def write() -> None:
        outcome.rows, outcome.sources = rows(store, wanted), list(store.sources)
        outcome.summaries, outcome.left_out = summaries(task, outcome.rows), store.left_out
        page = markdown.markdown(store, outcome.rows, outcome.summaries)
        markdown.write(outcome.table, page)

    if table_only and not store.lines:
        raise UserError(f"{store.path}: there are no results yet to make a table of")
    if not table_only:
        with store.adding(), Signals(time_limit or math.inf) as stop:
            try:
                _train_missing(wanted, store, outcome, say, write, stop)
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
    write: Callable[[], None],
    stop: Signals,
) -> None:
    names = dict.fromkeys(training.cell.data for training in wanted)
    graphs = {name: load_graph(name) for name in names}
    store.data |= {name: graph.fingerprint for name, graph in graphs.items()}
    missing = _missing(wanted, store)
    say(f"{len(wanted)} trainings in all, {len(wanted) - len(missing)} of them done already")
    for training in set(wanted) - set(missing):
        clear(unfinished(store, training))  # of a process that was killed just before it did
    failed: set[Training] = set()
    for number, training in enumerate(missing, 1):
        place = f"{number}/{len(missing)} {training.cell}"
        if unfinished(store, training).files() and not stop.late:
            say(f"{place}: goes on where it was stopped")
        name = f"{place}{_left(missing[number - 1 :], store)}"
        try:
            if stop.late:
                raise Stopped("not begun")
            if starts := failed.intersection(training.needs):
                raise UserError(f"its start failed: {starts.pop().cell}")
            line = _train(training, graphs[training.cell.data], store, name, say, stop)
        except UserError as error:  # such as a loss that is no number: others may still learn
            failed.add(training)
            outcome.failed.append(f"{training.cell}: {error}")
            say(f"{place}: failed: {error}")
            stop.check("stopped")
            continue
        except Stopped as stopped:
            if not stop.late:
                raise
            say(f"{place}: {stopped}; the time limit is reached")
            outcome.left = len(missing) - number + 1
            return
        store.add(line)
        clear(unfinished(store, training))
        outcome.trained += 1
        write()
        say(f"{place}: {_figures(store.task, line)}{_left(missing[number:], store)}")
        stop.check("stopped")
        if torch.cuda.is_available():
            gc.collect()  # what a finished training holds in cycles is memory of the GPU


def _left(trainings: Sequence[Training], store: Store) -> str:
    seconds = expected_seconds(trainings, store)
    return f"; about {duration(seconds)} left for all" if trainings and seconds is not None else ""


def _missing(wanted: Sequence[Training], store: Store) -> list[Training]:
    """Return what is to be trained: also the starts whose run folders are gone."""
    new = {training for training in wanted if not store.has(training)}
    starts = {start for training in new for start in training.needs}
    gone = {start for start in starts if not (_folder(store, start) / CARD).is_file()}
    return [training for training in wanted if training in new | gone]


def _folder(store: Store, training: Training) -> Path:
    return store.place("pretrain", training)


def _train(
    training: Training, graph: KnowledgeGraph, store: Store, name: str, say: Say, stop: Signals
) -> Line:
    """Train and measure one cell; what others start from becomes a run folder."""
    paths = [
        str(_folder(store, start)) if start else ""
        for start in (training.start, training.generator_start)
    ]
    config = dataclasses.replace(training.config, pretrain=paths[0], generator_pretrain=paths[1])
    began = time.perf_counter()
    heard = 0.0

    def observe(record: Record) -> None:
        nonlocal heard
        heard += record["seconds"]
        display.observe(record)

    with SeriesDisplay(name, config) as display:
        run = train(
            graph, config, checkpoints=unfinished(store, training).folder.parent,
            begin=display.begin, observe=observe, progress=progress_and_signals(display, stop),
            stop=stop, say=say,
        )  # fmt: skip
    measured = _measure(run, store.task)
    # All records, also those of before it was stopped, and what this process did beside.
    beside = max(0.0, time.perf_counter() - began - heard)
    seconds = sum(record["seconds"] for record in run.history) + beside
    if training.cell.sampler in STARTS_FROM:
        run.save(_folder(store, training), overwrite=True)
    return {
        **training.cell._asdict(),
        **{part: settings.to_dict() for part, settings in training.configs.items()},
        "epochs": sum("split" not in record for record in run.history),
        "best_epoch": run.best_epoch,
        **measured,
        "train_seconds": run.train_seconds,
        "epoch_seconds": epoch_seconds(run),
        "seconds": seconds,
        "device": device_name(config.device),
        "record": run.record,
        "data_fingerprint": graph.fingerprint,
        "nscaching": __version__,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


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
