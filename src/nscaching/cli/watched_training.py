"""Training with a progress bar, stopped by SIGINT or SIGTERM."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from nscaching.cli.progress import TrainingDisplay
from nscaching.cli.signals import Signals
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.runs.folder import RunFolder, resume_command
from nscaching.runs.run import Run
from nscaching.training.train import resume, train
from nscaching.training.trainer import Progress

__all__ = ["progress_and_signals", "resume_watched", "train_watched"]


def train_watched(
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: str | Path,
    **options: Any,  # noqa: ANN401  (those of train)
) -> Run:
    """Train with a progress bar, until a signal comes."""
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        listeners = _listeners(display, stop, "; nothing was written")
        run = train(graph, config, out=out, **options, **listeners)
        stop.check(f"stopped; {run.path} is finished")
    return run


def resume_watched(
    path: str,
    trust: bool,
    **options: Any,  # noqa: ANN401  (those of resume)
) -> Run:
    """Resume a training run with a progress bar, until a signal comes."""
    _, config = RunFolder(path).read_config(trust)
    config = dataclasses.replace(config, epochs=options.get("epochs", config.epochs))
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        listeners = _listeners(display, stop, f"; to go on: {resume_command(path)}")
        run = resume(path, trust=trust, begin=display.begin, **options, **listeners)
        stop.check(f"stopped; {run.path} is finished")
    return run


def progress_and_signals(display: TrainingDisplay, stop: Signals, left: str = "") -> Progress:
    """Return a callback that shows progress. A signal before the first step acts at once.

    From the first step on, training itself asks ``stop`` after each step.
    """

    def progress(what: str, done: int, of: int) -> None:
        display.progress(what, done, of)
        if what not in ("training", "valid", "test"):
            stop.check(f"stopped before the first step{left}")

    return progress


def _listeners(display: TrainingDisplay, stop: Signals, left: str) -> dict[str, Any]:
    """Return the callbacks of ``train`` and ``resume``; ``left`` says what a stop leaves behind."""

    def announce(text: str) -> None:
        display.announce(text)
        stop.check(f"stopped before the first step{left}")

    return {
        "announce": announce,
        "observe": display.observe,
        "progress": progress_and_signals(display, stop, left),
        "say": display.note,
        "stop": stop,
    }
