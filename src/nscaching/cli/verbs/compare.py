"""The verbs ``compare`` and ``demo``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nscaching.cli.tables import HEADINGS, cells, note, print_table, say
from nscaching.cli.verbs._base import Csv, Json, Run, RunPaths, Trust, one_form, print_plain
from nscaching.cli.verbs.predict import print_answers
from nscaching.errors import UserError, check_bounds, user_path

# Each has an answer in the test split, which training never sees.
QUESTIONS = (
    ("Madagascar", "speaks", None),
    ("Lesotho", "uses_currency", None),
    (None, "has_province", "Mostaganem"),
)

# The way that is the default, and single negatives with the settings that suit them best on this
# graph; what is left open is chosen for the graph.
WAYS: dict[str, dict[str, Any]] = {
    "nscaching": {"dim": 100, "epochs": 36, "lr": 0.2, "validate_every": 2},
    "uniform": {
        "sampler": "uniform", "model": "TransE", "dim": 100, "batch_size": 512, "epochs": 100,
        "validate_every": 5,
    },
    "bernoulli": {
        "sampler": "bernoulli", "dim": 100, "batch_size": 512, "epochs": 100, "validate_every": 5,
        "penalty": 0.02,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Compare:
    """Compare runs: a table, and with --plot a plot of validation MRR against time.

    nscaching compare runs/a runs/b --plot compare.png
    """

    paths: RunPaths
    plot: str = ""
    """Image to write, such as compare.png; empty: none."""
    overwrite: bool = False
    """Replace the image if it exists."""
    trust: Trust = False
    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.files import refuse_existing
        from nscaching.runs.run import Run

        one_form(self.json, self.csv)
        if not self.paths:
            raise UserError("say which runs to compare: nscaching compare RUN …")
        runs = [Run.load(path, "cpu", self.trust) for path in self.paths]
        plot = user_path(self.plot) if self.plot else None
        if plot is not None:
            refuse_existing(plot, "--plot", self.overwrite)
            if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
                raise UserError(f"--plot {plot}: the name must end in .png, .svg or .pdf")
        compare(runs, plot, self.json, self.csv)


@dataclass(frozen=True)
class Demo:
    """Train with the cache and with random negatives on the embedded data set; compare them.

    nscaching demo
    """

    out: str = ""
    """Folder for the runs; empty: a new one under runs/."""
    epochs: int = 100
    """The most epochs of each training."""
    json: Json = False

    def run(self) -> None:
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.training import watched
        from nscaching.files import free_path
        from nscaching.training.defaults import describe, settings_for
        from nscaching.training.train import train

        folder = user_path(self.out) if self.out else free_path(Path("runs") / "demo")
        if folder.exists():
            raise UserError(f"{folder} exists already; choose another --out")
        check_bounds("epochs", self.epochs, 1)
        graph = load_graph("world")
        describe_graph(graph)
        runs = []
        for name, way in WAYS.items():
            config = settings_for(graph, **way | {"epochs": min(way["epochs"], self.epochs)})
            note(f"{name}: {describe(config)}")
            runs.append(watched(partial(train, graph, config, out=folder / name), config))
        answers = [
            runs[0].predict(h, r, t, top=3, known="mark").queries[0] for h, r, t in QUESTIONS
        ]
        compare(runs, folder / "compare.png", self.json, answers=answers)
        if self.json:
            return
        for answer in answers:
            say("")
            print_answers(answer, runs[0].graph)
        say("", f"run folders: {', '.join(str(run.path) for run in runs)}")


def compare(
    runs: Sequence[Run], plot: Path | None, as_json: bool, as_csv: bool = False, **more: object
) -> None:
    """Print the figures of runs, in JSON with more, and draw validation MRR against time.

    The table has the test metrics, or validation metrics where there is no test.
    """
    from nscaching.runs.folder import split_name
    from nscaching.runs.plots import plot_comparison

    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    if plot is not None:
        plot_comparison(runs, names, plot)
    found, written = list(map(summary, runs)), None if plot is None else str(plot)
    if print_plain(as_json, as_csv, {"runs": found, "plot": written, **more}, found):
        return
    rows = []
    for name, run in zip(names, runs, strict=True):
        result = run.result("test") or run.result("valid")
        figures = [split_name(result), *cells(result)] if result else ["–"] * (1 + len(HEADINGS))
        what = run.graph.name, run.config.model, run.config.sampler
        rows.append([name, *what, *figures, f"{run.train_seconds:.1f}"])
    headings = ["run", "data", "model", "sampler", "split", *HEADINGS.values(), "seconds"]
    print_table(headings, rows, words=range(4))
    if plot is not None:
        say(f"plot: {plot}")


def summary(run: Run) -> dict[str, Any]:
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
