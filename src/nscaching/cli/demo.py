"""Five minutes for a newcomer: the cache against Bernoulli sampling on the embedded data set."""

from __future__ import annotations

from pathlib import Path

from nscaching.cli import show, work
from nscaching.config import TrainConfig
from nscaching.errors import UserError, user_path
from nscaching.files import free_path

__all__ = ["run"]

SAMPLERS = ("nscaching", "bernoulli")
# Each has an answer in the test split, which training never sees.
QUESTIONS = (
    {"head": "Madagascar", "relation": "speaks"},
    {"head": "Lesotho", "relation": "uses_currency"},
    {"relation": "has_province", "tail": "Mostaganem"},
)


def run(out: str, epochs: int, as_json: bool = False) -> None:
    """Train twice with the same settings, compare, and answer three questions."""
    folder = user_path(out) if out else free_path(Path("runs") / "demo")
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out")
    configs = [TrainConfig(sampler=sampler, epochs=epochs) for sampler in SAMPLERS]
    graph = work.load("world")
    show.graph(graph)
    runs = [work.train(graph, config, folder / config.sampler) for config in configs]
    plot = work.compare(runs, folder / "compare.png")
    answers = [runs[0].predict(**question, top=3, known="mark") for question in QUESTIONS]
    show.demonstration(runs, plot, answers, as_json)
