"""The verb ``demo``: the cache against Bernoulli sampling on the embedded data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.cli.tables import print_json, say
from nscaching.cli.verbs._base import Json
from nscaching.cli.verbs.compare import comparison, draw_comparison, print_comparison
from nscaching.cli.verbs.predict import print_answers
from nscaching.config import TrainConfig
from nscaching.errors import UserError, user_path

if TYPE_CHECKING:
    from nscaching.runs.run import Run

SAMPLERS = ("nscaching", "bernoulli")
# Each has an answer in the test split, which training never sees.
QUESTIONS = (
    {"head": "Madagascar", "relation": "speaks"},
    {"head": "Lesotho", "relation": "uses_currency"},
    {"relation": "has_province", "tail": "Mostaganem"},
)


@dataclass(frozen=True)
class Demo:
    """Train nscaching and Bernoulli sampling on the embedded data set and compare them.

    nscaching demo
    """

    out: str = ""
    """Folder for the two runs; empty: a new one under runs/."""
    epochs: int = 60
    """Epochs of each training."""
    json: Json = False

    def run(self) -> None:
        """Train twice with the same settings, compare, and answer three questions."""
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.watched_training import train_watched
        from nscaching.files import free_path

        folder = user_path(self.out) if self.out else free_path(Path("runs") / "demo")
        if folder.exists():
            raise UserError(f"{folder} exists already; choose another --out")
        configs = [TrainConfig(sampler=sampler, epochs=self.epochs) for sampler in SAMPLERS]
        graph = load_graph("world")
        describe_graph(graph)
        runs = [train_watched(graph, config, folder / config.sampler) for config in configs]
        plot = folder / "compare.png"
        draw_comparison(runs, plot)
        answers = [runs[0].predict(**question, top=3, known="mark") for question in QUESTIONS]
        if self.json:
            print_json({**comparison(runs, plot), "answers": answers})
        else:
            print_results(runs, plot, answers)


def print_results(runs: Sequence[Run], plot: Path, answers: Sequence[dict[str, Any]]) -> None:
    """Print the runs side by side, and the answers of the first run."""
    print_comparison(runs, plot)
    for answer in answers:
        say("")
        print_answers(answer)
    say("", f"run folders: {', '.join(str(run.path) for run in runs)}")
