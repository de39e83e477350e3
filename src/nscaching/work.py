"""What the verbs do: the library's calls, with progress shown and names chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching import datasets
from nscaching.config import TrainConfig, read_toml
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import MODELS
from nscaching.plots import plot_comparison
from nscaching.progress import TrainingDisplay, counting, downloading
from nscaching.run import Run
from nscaching.run import train as train_run
from nscaching.run_folder import RunFolder
from nscaching.samplers import SAMPLERS
from nscaching.trainer import choose_device

__all__ = [
    "check",
    "compare",
    "default_out",
    "evaluate",
    "free_path",
    "load",
    "load_run",
    "note_changed_data",
    "train",
]


def check(config: TrainConfig, out: str, overwrite: bool) -> None:
    """Find what can be found wrong before the data are loaded."""
    MODELS.get(config.model)
    SAMPLERS.get(config.sampler)
    choose_device(config.device)
    if out:
        RunFolder(out).check_free(overwrite)


def load(where: str, labels: str = "", split_seed: int = 0) -> KnowledgeGraph:
    """Load a graph, showing the download if there is one."""
    known = datasets.find(where)
    if known is not None and not datasets.is_cached(known.name):
        with downloading(known.name) as progress:
            datasets.fetch(known.name, progress)
    return KnowledgeGraph.load(where, labels, split_seed)


def note_changed_data(graph: KnowledgeGraph, config: Path) -> None:
    """Add a note to the graph if the run whose configuration this is had other data."""
    recorded = read_toml(config).get("record", {}).get("data_fingerprint", graph.fingerprint)
    if recorded != graph.fingerprint:
        graph.notes.append(f"the data are not those of {config}: its results will not come out")


def load_run(path: Path, device: str) -> Run:
    """Load a run folder."""
    return Run.load(path, device)


def default_out(graph: KnowledgeGraph, config: TrainConfig) -> Path:
    """Return the folder of a run that was given none."""
    model = config.model.rpartition(":")[2]
    sampler = config.sampler.rpartition(":")[2]
    return Path("runs") / f"{graph.name}-{model}-{sampler}-seed{config.seed}".lower()


def free_path(path: Path) -> Path:
    """Return the path, or with a number behind its name the first that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def train(
    graph: KnowledgeGraph, config: TrainConfig, out: str | Path, overwrite: bool = False
) -> Run:
    """Train with a progress bar."""
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display:
        return train_run(
            graph,
            config,
            out=out,
            overwrite=overwrite,
            observe=display.observe,
            progress=display.progress,
        )


def evaluate(run: Run, split: str, options: dict[str, Any]) -> dict[str, Any]:
    """Rank with a progress bar."""
    with counting(f"ranking {split}") as progress:
        return run.evaluate(split, progress=progress, **options)


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
        plot_comparison(runs, [run.name for run in runs], plot)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or plot}: {error.strerror}") from error
    return plot
