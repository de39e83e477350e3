"""Validation MRR of the fast path and of each approximation beside the reference path.

python benchmarks/quality.py [--data fb15k237] [--epochs 100] [--seeds 1 2 3] [--only fast lazy]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from nscaching import KnowledgeGraph, TrainConfig, train

VARIANTS: dict[str, dict[str, Any]] = {
    "reference": {"kernels": "reference"},
    "fast": {},
    "shared candidates": {"shared_candidates": True},
    "drawn side": {"refresh_side": "drawn"},
    "bfloat16 rows": {"candidate_rows": "bfloat16"},
    "lazy 1": {"lazy": 1},
    "row-adam": {"optimizer": "row-adam"},
    "bernoulli": {"sampler": "bernoulli"},
}
MODELS: dict[str, dict[str, Any]] = {"TransE": {"margin": 4.0}, "ComplEx": {}}


def main() -> None:
    """Train and print a Markdown table; write what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/quality.json"))
    chosen = parser.parse_args()
    graph = KnowledgeGraph.load(chosen.data)
    found = []
    print("| model | variant | mean best validation MRR | of each seed | seconds an epoch |")
    print("|---|---|---|---|---|")
    for model in chosen.models:
        for variant in chosen.only:
            settings = {"model": model, "epochs": chosen.epochs, "batch_size": chosen.batch_size}
            settings |= {"validate_every": 10, **MODELS[model], **VARIANTS[variant]}
            mrr, seconds = [], []
            for seed in chosen.seeds:
                run = train(graph, TrainConfig(), seed=seed, **settings)
                mrr.append(max(r["mrr"] for r in run.history if r.get("split") == "valid"))
                passes = [r["seconds"] for r in run.history if "split" not in r]
                seconds.append(statistics.median(passes))
            found.append({"model": model, "variant": variant, "seeds": chosen.seeds, "mrr": mrr})
            found[-1] |= {"seconds": statistics.median(seconds), "settings": settings}
            each = ", ".join(f"{value:.4f}" for value in mrr)
            mean, time = statistics.mean(mrr), f"{found[-1]['seconds']:.4f}"
            print(f"| {model} | {variant} | {mean:.4f} | {each} | {time} |")
            sys.stdout.flush()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
