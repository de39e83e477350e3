"""Test MRR of nscaching, Bernoulli and uniform sampling on `world`: the same settings, three seeds.

python benchmarks/samplers_on_world.py [--epochs 60] [--seeds 1 2 3] [--samplers …]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from nscaching import KnowledgeGraph, TrainConfig, train

SETTINGS: dict[str, dict[str, Any]] = {
    "TransE": {},
    "TransH": {},
    "TransD": {},
    "DistMult": {"penalty": 0.3},
    "ComplEx": {"penalty": 0.3},
    "ComplEx, dim 50": {"model": "ComplEx", "dim": 50, "penalty": 0.3},
    "ComplEx, softmax": {
        "model": "ComplEx",
        "objective": "softmax",
        "reciprocal": True,
        "n1": 64,
        "refresh": "top",
        "optimizer": "adagrad",
        "lr": 0.1,
        "penalty_norm": "n3",
        "penalty": 0.3,
    },
}


def main() -> None:
    """Train and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--samplers", nargs="+", default=["uniform", "bernoulli", "nscaching"])
    chosen = parser.parse_args()
    graph = KnowledgeGraph.load("world")
    columns = [*chosen.samplers, *(f"seconds, {sampler}" for sampler in chosen.samplers)]
    print(f"| settings | {' | '.join(columns)} |")
    print(f"|{'---|' * (1 + len(columns))}")
    for name in chosen.only:
        figures, seconds = {}, {}
        for sampler in chosen.samplers:
            settings = {"model": name, "epochs": chosen.epochs, "validate_every": 5}
            settings |= {"sampler": sampler, **SETTINGS[name]}
            runs = [train(graph, TrainConfig(), seed=seed, **settings) for seed in chosen.seeds]
            mrr = [run.evaluate()["mrr"] for run in runs]
            spread = ", ".join(f"{value:.3f}" for value in mrr)
            figures[sampler] = f"{statistics.mean(mrr):.3f} ({spread})"
            seconds[sampler] = f"{statistics.mean(run.train_seconds for run in runs):.1f}"
        print(f"| {name} | {' | '.join([*figures.values(), *seconds.values()])} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
