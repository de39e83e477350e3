"""Validation MRR against seconds of training: the default beside plain negatives, on six graphs.

python benchmarks/equal_time.py [--data nations world …] [--draw]

All ways train ComplEx with what ``train(graph, model="ComplEx", seed=1)`` and the same with
``sampler=…`` choose for the graph, without an end but the time. They train in turn, an epoch each,
so that other programs on the machine slow all of them alike. Rankings do not count as training.

Writes the points to --out, graph by graph; with --draw also the figure of the docs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from defaults import load

from nscaching import KnowledgeGraph
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.training.defaults import describe, settings_for
from nscaching.training.trainer import Trainer

WAYS = {
    "default": {},
    "uniform": {"sampler": "uniform"},
    "Bernoulli": {"sampler": "bernoulli"},
    "self-adversarial": {"sampler": "self-adversarial"},
}
SECONDS = {"nations": 2, "umls": 10, "kinships": 10, "world": 40, "wn18rr": 60, "fb15k237": 60}
TITLES = {"nations": "Nations", "umls": "UMLS", "kinships": "Kinship", "world": "world"}
TITLES |= {"wn18rr": "WN18RR", "fb15k237": "FB15K-237"}
POINTS = 12  # validations of each curve
ROOT = Path(__file__).parents[1]


class Curve:
    """One training and the validations it has had."""

    def __init__(self, graph: KnowledgeGraph, way: str, seconds: float) -> None:
        config = settings_for(graph, model="ComplEx", seed=1, **WAYS[way])
        self.trainer = Trainer(graph, config.changed(epochs=100_000, patience=0))
        self.about = {"way": way, "settings": describe(config)}
        self.seconds, self.points = seconds, [(0.0, self.mrr())]

    def mrr(self) -> float:
        return round(float(self.trainer.rank("valid", self.trainer.trained)["mrr"]), 4)

    @property
    def over(self) -> bool:
        return self.trainer.seconds >= self.seconds

    def epoch(self) -> None:
        self.trainer.epoch(self.trainer.trained + 1)
        taken = self.trainer.seconds
        if self.over or taken >= self.points[-1][0] + self.seconds / POINTS:
            self.points.append((round(taken, 2), self.mrr()))

    def row(self) -> dict[str, Any]:
        return {**self.about, "epochs": self.trainer.trained, "points": self.points}


def measure(name: str, seconds: float) -> list[dict[str, Any]]:
    graph = load(name)
    curves = [Curve(graph, way, seconds) for way in WAYS]
    with torch_settings(curves[0].trainer.config.threads):
        while going := [curve for curve in curves if not curve.over]:
            min(going, key=lambda curve: curve.trainer.seconds).epoch()
    return [curve.row() for curve in curves]


def draw(found: dict[str, list[dict[str, Any]]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 5.4), layout="constrained")
    all_axes = figure.subplots(2, 3).flat
    for axes, (name, title) in zip(all_axes, TITLES.items(), strict=True):
        for row in found.get(name, []):
            first = row["way"] == "default"
            style = {"color": "#0b6e4f", "lw": 2.2, "zorder": 3} if first else {"lw": 1.3}
            label = "default: cached softmax" if first else row["way"]
            axes.plot(*zip(*row["points"], strict=True), "o-", ms=2.5, label=label, **style)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.25)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=8)
    figure.supxlabel("seconds of training", fontsize=9)
    figure.supylabel("validation MRR", fontsize=9)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", nargs="*", default=list(SECONDS), choices=list(SECONDS))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/equal-time.json")
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    for name in asked.data:
        found[name] = measure(name, SECONDS[name])
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        ends = ", ".join(f"{row['way']} {row['points'][-1][1]:.3f}" for row in found[name])
        print(f"{TITLES[name]}, {SECONDS[name]} s: {ends}", flush=True)
    if asked.draw:
        draw(found, ROOT / "docs/images/equal-time.png")


if __name__ == "__main__":
    main()
