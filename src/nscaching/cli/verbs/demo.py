"""The verb ``demo``: the cache against Bernoulli sampling on the embedded data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nscaching.cli.tables import print_json, say
from nscaching.cli.verbs._base import Json, Run
from nscaching.cli.verbs.compare import compare, print_comparison
from nscaching.cli.verbs.predict import print_answers
from nscaching.config import TrainConfig
from nscaching.errors import UserError, user_path

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
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.training import watched
        from nscaching.files import free_path
        from nscaching.training.train import train

        folder = user_path(self.out) if self.out else free_path(Path("runs") / "demo")
        if folder.exists():
            raise UserError(f"{folder} exists already; choose another --out")
        configs = [TrainConfig(sampler=sampler, epochs=self.epochs) for sampler in SAMPLERS]
        graph = load_graph("world")
        describe_graph(graph)
        runs = [
            watched(partial(train, graph, config, out=folder / config.sampler), config)
            for config in configs
        ]
        plot = folder / "compare.png"
        figures = compare(runs, plot)
        answers = [runs[0].predict(**question, top=3, known="mark") for question in QUESTIONS]
        if self.json:
            print_json({**figures, "answers": answers})
        else:
            print_results(runs, plot, answers)


def print_results(runs: Sequence[Run], plot: Path, answers: Sequence[dict[str, Any]]) -> None:
    """Print the runs side by side, and the answers of the first run."""
    print_comparison(runs, plot)
    for answer in answers:
        say("")
        print_answers(answer)
    say("", f"run folders: {', '.join(str(run.path) for run in runs)}")
