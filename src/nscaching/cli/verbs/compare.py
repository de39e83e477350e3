"""The verb ``compare``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.cli.tables import HEADINGS, cells, print_json, print_table, say
from nscaching.cli.verbs._base import Json, Run, RunPaths, Trust
from nscaching.errors import UserError, user_path


@dataclass(frozen=True)
class Compare:
    """Compare runs: a table, and a plot of validation MRR against time.

    nscaching compare runs/a runs/b
    """

    paths: RunPaths
    plot: str = ""
    """Image to write; empty: compare.png, or the next free name."""
    overwrite: bool = False
    """Replace the image if it exists."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        from nscaching.files import free_path
        from nscaching.runs.run import Run

        runs = [Run.load(path, "cpu", self.trust) for path in self.paths]
        plot = user_path(self.plot) if self.plot else free_path(Path("compare.png"))
        figures = compare(runs, plot, self.overwrite)
        if self.json:
            print_json(figures)
        else:
            print_comparison(runs, plot)


def compare(runs: Sequence[Run], plot: Path, overwrite: bool = False) -> dict[str, Any]:
    """Draw the validation MRR of runs against time; return the figures of the runs for JSON."""
    from nscaching.files import writing
    from nscaching.runs.plots import plot_comparison

    if not runs:
        raise UserError("say which runs to compare: nscaching compare RUN …")
    if plot.exists() and not overwrite:
        raise UserError(f"{plot} exists already; choose another --plot, or say --overwrite")
    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {plot}: the name must end in .png, .svg or .pdf")
    with writing(plot.parent):
        plot.parent.mkdir(parents=True, exist_ok=True)
    plot_comparison(runs, _distinct_names(runs), plot)
    return {"runs": [summary(run) for run in runs], "plot": str(plot)}


def summary(run: Run) -> dict[str, Any]:
    """Return the figures of a run that training recorded."""
    return {
        "run": str(run.path or run.name),
        "data": run.graph.name,
        "model": run.config.model,
        "sampler": run.config.sampler,
        "epochs": sum("loss" in record for record in run.history),
        "best_epoch": run.best_epoch,
        "train_seconds": run.train_seconds,
        "valid": run.result("valid"),
        "test": run.result("test"),
    }


def print_comparison(runs: Sequence[Run], plot: Path) -> None:
    """Print the test metrics of runs side by side; validation metrics where there is no test."""
    rows = []
    for name, run in zip(_distinct_names(runs), runs, strict=True):
        result = run.result("test") or run.result("valid")
        figures = [result["split"], *cells(result)] if result else ["–"] * (1 + len(HEADINGS))
        rows.append([name, *figures, f"{run.train_seconds:.1f}"])
    print_table(["run", "split", *HEADINGS.values(), "seconds"], rows)
    say(f"plot: {plot}")


def _distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs, or their folders where two names are equal."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]
