"""What the verbs do: the library's calls, with progress shown and names chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching.cli.progress import TrainingDisplay, counting, downloading, loading, when_slow
from nscaching.cli.signals import Signals
from nscaching.config import TrainConfig
from nscaching.data import datasets
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, user_path
from nscaching.kernels.dispatch import choose_device
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.probes import ProbeConfig
from nscaching.runs.folder import RunFolder, resume_command
from nscaching.runs.plots import plot_comparison
from nscaching.runs.run import Run
from nscaching.runs.settings import read_record
from nscaching.samplers import SAMPLERS
from nscaching.training.memory import Plan, Statement, refusal, state
from nscaching.training.objective import choose_objective
from nscaching.training.recorder import CHECKPOINT_SECONDS
from nscaching.training.train import differences
from nscaching.training.train import resume as resume_run
from nscaching.training.train import train as train_run
from nscaching.training.trainer import Progress

__all__ = [
    "answering",
    "check",
    "compare",
    "distinct_names",
    "dry_run",
    "evaluate",
    "export",
    "load",
    "note_differences",
    "note_preset",
    "resume",
    "train",
]


def check(config: TrainConfig, out: str, overwrite: bool) -> None:
    """Find what can be found wrong before the data are loaded."""
    for name in (config.model, config.generator):
        MODELS.get(name)
    SAMPLERS.get(config.sampler)
    choose_objective(config, MODELS.get(config.model))
    choose_device(config.device)
    if out:
        RunFolder(out).check_free(overwrite)


def load(
    where: str, labels: str = "", split_seed: int = 0, literals: bool = False
) -> KnowledgeGraph:
    """Load a graph, showing the download if there is one, and progress if it takes long."""
    known = datasets.find(where)
    if known is not None and not datasets.is_cached(known.name):
        with downloading(known.name) as progress:
            datasets.fetch(known.name, progress)
    with loading(f"loading {where}") as progress:
        graph = KnowledgeGraph.load(where, labels, split_seed, literals, progress)
        progress("indexing", 0, 2)  # here, where it is seen; training and ranking need both
        assert graph.train_keys
        progress("indexing", 1, 2)
        assert graph.filter_index
        return graph


def note_differences(graph: KnowledgeGraph, config: TrainConfig, file: Path) -> None:
    """Note on the graph what keeps the run of a configuration file from coming out the same."""
    for difference in differences(read_record(file), graph, config):
        graph.notes.append(f"the run of {file} will not come out the same: its {difference}")


def note_preset(graph: KnowledgeGraph, config: TrainConfig, preset: str) -> None:
    """Note on the graph that a preset was tuned for other data or another model."""
    data, tuned = presets.load(*presets.parse(preset))
    theirs, ours = f"{tuned.model} on {data}", f"{config.model} on {graph.name}"
    if theirs.casefold() != ours.casefold():
        graph.notes.append(f"--preset {preset} was tuned for {theirs}, not for {ours}")


def dry_run(
    graph: KnowledgeGraph, config: TrainConfig, out: str | Path, probes: ProbeConfig
) -> tuple[Statement, str]:
    """State what a training needs of memory and disk; say what is wrong if it cannot fit."""
    plan = Plan(graph, config, len(probes.snapshots))
    found = state(plan, user_path(out))
    place = found.lacking()
    return found, "" if place is None else refusal(plan, found, place)


def train(
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: str | Path,
    overwrite: bool = False,
    probes: ProbeConfig | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Run:
    """Train with a progress bar, until a signal comes."""
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        run = train_run(
            graph,
            config,
            probes=probes,
            out=out,
            overwrite=overwrite,
            checkpoint_every=checkpoint_every,
            **_heard(display, stop, "nothing was written"),
        )
        stop.check(f"stopped; {run.path} is finished")
    return run


def resume(path: str, checkpoint_every: float, given: dict[str, Any], trust: bool) -> Run:
    """Go on with a training, with a progress bar, until a signal comes."""
    _, config = RunFolder(path).read_config(trust)
    config = dataclasses.replace(config, epochs=given.get("epochs", config.epochs))
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        run = resume_run(
            path,
            trust=trust,
            checkpoint_every=checkpoint_every,
            begin=display.begin,
            **_heard(display, stop, f"to go on: {resume_command(path)}"),
            **given,
        )
        stop.check(f"stopped; {run.path} is finished")
    return run


def answering(display: TrainingDisplay, stop: Signals, left: str = "") -> Progress:
    """Return what shows progress and, until the first step, lets a signal end it anywhere."""

    def progress(what: str, done: int, of: int) -> None:
        display.progress(what, done, of)
        if what not in ("training", "valid", "test"):
            stop.check(f"stopped before the first step{left}")

    return progress


def _heard(display: TrainingDisplay, stop: Signals, left: str) -> dict[str, Any]:
    """Return what a training tells, and asks; until its first step, it may end anywhere."""

    def announce(text: str) -> None:
        display.announce(text)
        stop.check(f"stopped before the first step; {left}")

    progress = answering(display, stop, f"; {left}")
    told = {"observe": display.observe, "progress": progress, "announce": announce}
    return {**told, "stop": stop, "say": display.note}


def evaluate(run: Run, split: str, options: dict[str, Any]) -> dict[str, Any]:
    """Rank with a progress bar."""
    with counting(f"ranking {split}") as progress:
        return run.evaluate(split, progress=progress, **options)


def export(run: Run, path: str, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the vectors, with a progress bar if it takes long."""
    with when_slow(f"writing {path}") as progress:
        return run.export(path, overwrite, progress)


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs, with their folders where names alone would not tell them apart."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        return [str(run.path) for run in runs]
    return names


def compare(runs: Sequence[Run], plot: Path, overwrite: bool = False) -> Path:
    """Draw the validation MRR of runs against time; return where the plot is."""
    if not runs:
        raise UserError("say which runs to compare: nscaching compare RUN …")
    if plot.exists() and not overwrite:
        raise UserError(f"{plot} exists already; choose another --plot, or say --overwrite")
    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {plot}: the name must end in .png, .svg or .pdf")
    try:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot_comparison(runs, distinct_names(runs), plot)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or plot}: {error.strerror}") from error
    return plot
