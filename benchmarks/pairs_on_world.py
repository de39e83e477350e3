"""Test MRR on `world` of every scoring function with every sampler, with the same settings.

python benchmarks/pairs_on_world.py [--epochs 60] [--models …] [--samplers …] [--device auto]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nscaching import KnowledgeGraph, TrainConfig, train
from nscaching.models import MODELS
from nscaching.samplers import SAMPLERS


def main() -> None:
    """Train all pairs and print a Markdown table; write what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=MODELS.names())
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS.names())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pairs.json"))
    chosen = parser.parse_args()
    graph, found = KnowledgeGraph.load("world"), []
    print(f"| | {' | '.join(chosen.samplers)} |\n|{'---|' * (1 + len(chosen.samplers))}")
    for model in chosen.models:
        cells = []
        for sampler in chosen.samplers:
            settings = {"model": model, "sampler": sampler, "epochs": chosen.epochs}
            settings |= {"seed": chosen.seed, "device": chosen.device, "threads": chosen.threads}
            run = train(graph, TrainConfig(), **settings)
            mrr = run.result("test")["mrr"]
            found.append({**settings, "mrr": mrr, "seconds": run.train_seconds})
            cells.append(f"{mrr:.3f} ({run.train_seconds:.1f} s)")
        print(f"| {model} | {' | '.join(cells)} |")
        sys.stdout.flush()
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
