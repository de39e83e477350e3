"""Five minutes for a newcomer: the cache against Bernoulli sampling on the embedded data set."""

from __future__ import annotations

import sys
from pathlib import Path

from nscaching import show, work
from nscaching.config import TrainConfig

__all__ = ["run"]

QUESTIONS = (
    {"head": "Portugal", "relation": "speaks"},
    {"relation": "borders", "tail": "Germany"},
    {"head": "Nairobi", "relation": "in_subregion"},
)


def run(out: str, epochs: int) -> None:
    """Train twice with the same settings, compare, and answer three questions."""
    folder = Path(out) if out else work.free_path(Path("runs") / "demo")
    graph = work.load("world")
    show.graph(graph)
    runs = [
        work.train(graph, TrainConfig(sampler=sampler, epochs=epochs), folder / sampler)
        for sampler in ("nscaching", "bernoulli")
    ]
    plot = work.compare(runs, folder / "compare.png")
    sys.stdout.write("\n")
    show.comparison(runs, plot, as_json=False)
    for question in QUESTIONS:
        sys.stdout.write("\n")
        show.prediction(runs[0].predict(**question, top=3, known="mark"), as_json=False)
    sys.stdout.write(f"\nrun folders: {', '.join(str(r.path) for r in runs)}\n")
