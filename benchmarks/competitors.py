"""Validation MRR against epochs and against seconds, for one scoring function and each sampler.

python benchmarks/competitors.py [--data fb15k237] [--model TransE] [--epochs 100] [--samplers …]

KBGAN and IGAN run from scratch and, as "pretrain", from runs of Bernoulli sampling of as many
epochs as --pretrain-epochs says, both the trained model and the generator.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from nscaching import KnowledgeGraph, TrainConfig, train

VARIANTS: dict[str, dict[str, Any]] = {
    "bernoulli": {"sampler": "bernoulli"},
    "nscaching": {"sampler": "nscaching"},
    "kbgan": {"sampler": "kbgan"},
    "kbgan, pretrain": {"sampler": "kbgan", "pretrain": True},
    "igan": {"sampler": "igan"},
    "igan, pretrain": {"sampler": "igan", "pretrain": True},
    "self-adversarial": {"sampler": "self-adversarial"},
    "1vsall": {"sampler": "none"},
}


def plot(found: list[dict[str, Any]], path: Path, title: str) -> None:
    """Draw both curves of every variant."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, sides = plt.subplots(1, 2, figsize=(13, 5), layout="constrained", sharey=True)
    for side, key in zip(sides, ("epoch", "seconds"), strict=True):
        for run in found:
            side.plot(run[key], run["mrr"], ".-", label=run["variant"])
        side.set(xlabel=key, ylabel="validation MRR", title=title)
        side.grid(alpha=0.3)
    sides[1].set_xscale("log")
    sides[0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, print a Markdown table, write curves as JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--pretrain-epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--margin", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--samplers", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    graph = KnowledgeGraph.load(chosen.data)
    base = {"model": chosen.model, "batch_size": chosen.batch_size, "margin": chosen.margin}
    base |= {"seed": chosen.seed, "threads": chosen.threads}
    base |= {"validate_every": max(1, chosen.epochs // 20)}
    found = []
    name = f"competitors-{graph.name}-{chosen.model}".lower()
    chosen.out.mkdir(parents=True, exist_ok=True)
    print("| | best validation MRR | at epoch | test MRR | seconds of training |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        start: dict[str, str] = {}
        for variant in chosen.samplers:
            settings = base | {"epochs": chosen.epochs} | VARIANTS[variant]
            if settings.pop("pretrain", False):
                if not start:
                    first = base | {"epochs": chosen.pretrain_epochs, "sampler": "bernoulli"}
                    train(graph, TrainConfig(), out=f"{folder}/model", **first)
                    train(
                        graph,
                        TrainConfig(),
                        out=f"{folder}/generator",
                        **first | {"model": "TransE"},
                    )
                    start["pretrain"] = f"{folder}/model"
                    start["generator_pretrain"] = f"{folder}/generator"
                settings |= start
            run = train(graph, TrainConfig(), **settings)
            points = [r for r in run.history if r.get("split") == "valid"]
            best = max(points, key=lambda r: r["mrr"])
            found.append({"variant": variant, "epoch": [r["epoch"] for r in points]})
            found[-1]["seconds"] = [r["trained_seconds"] for r in points]
            found[-1]["mrr"] = [r["mrr"] for r in points]
            test = run.result("test")["mrr"]
            print(
                f"| {variant} | {best['mrr']:.4f} | {best['epoch']} | {test:.4f} "
                f"| {run.train_seconds:.1f} |"
            )
            sys.stdout.flush()
            (chosen.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    plot(found, chosen.out / f"{name}.png", f"{graph.name}, {chosen.model}")


if __name__ == "__main__":
    main()
