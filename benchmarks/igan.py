"""IGAN and Bernoulli sampling from the same start: WN18 and FB15K with TransE, TransH and TransD.

python benchmarks/igan.py OUT.jsonl [--seconds 160] [--processes 3] [--data world --models TransE]

Of each cell: Bernoulli sampling with the paper's settings, then IGAN for as many epochs as the time
allows, and from the same start Bernoulli sampling for as many epochs with the same settings. The
cells share the seconds. Appends a line for each ranking to OUT.jsonl and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.kernels import State
from nscaching.paper import presets
from nscaching.training.trainer import Trainer

Row = dict[str, Any]
# After the start, whose settings are the preset's.
SETTINGS: Row = {"lr": 0.001, "entropy_bonus": 1.0}
BATCHES = {"wn18": 256}  # else 512
START, GENERATING = 0.25, 0.58  # shares of the seconds of a cell


class Cell:
    """The trainings of one model on one data set."""

    def __init__(self, data: str, model: str, seconds: float, out: Path) -> None:
        self.data, self.model, self.seconds, self.out = data, model, seconds, out
        self.graph = KnowledgeGraph.load(data)

    def rank(self, trainer: Trainer, stage: str, split: str) -> Row:
        found = trainer.rank(split, trainer.trained)
        row = {"data": self.data, "model": self.model, "stage": stage, "split": split}
        row |= {name: found[name] for name in ("epoch", "mr", "mrr", "hits@10", "trained_seconds")}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def train(
        self, stage: str, config: TrainConfig, start: State | None, limit: float, most: int = 1000
    ) -> tuple[Trainer, Row]:
        trainer, began = Trainer(self.graph, config, (start, start)), time.perf_counter()
        while trainer.trained < most:
            trainer.epoch(trainer.trained + 1)
            if stage == "igan" and trainer.trained % 4 == 0:
                self.rank(trainer, stage, "valid")
            if time.perf_counter() - began > limit:
                break
        return trainer, self.rank(trainer, stage, "test")

    def run(self) -> list[Row]:
        name = f"{self.data}-{self.model}".lower()
        config = presets.load(name, "paper")[1] if name in presets.names() else TrainConfig(dim=20)
        config = config.changed(model=self.model, sampler="bernoulli", seed=1, threads=1)
        trainer, first = self.train("start", config, None, START * self.seconds)
        start = {name: table.clone() for name, table in trainer.model.state_dict().items()}
        config = config.changed(**SETTINGS, batch_size=BATCHES.get(self.data, 512))
        limit = GENERATING * self.seconds
        trainer, made = self.train("igan", config.changed(sampler="igan"), start, limit)
        _, plain = self.train("bernoulli", config, start, self.seconds, trainer.trained)
        return [first, plain, made]


def run(asked: tuple[str, str, float, Path]) -> list[Row]:
    return Cell(*asked).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", default=["fb15k", "wn18"])
    parser.add_argument("--models", nargs="+", default=["TransE", "TransH", "TransD"])
    parser.add_argument("--seconds", type=float, default=160.0)
    parser.add_argument("--processes", type=int, default=3)
    chosen = parser.parse_args()
    cells = [(data, model) for data in chosen.data for model in chosen.models]
    share = chosen.seconds * min(1.0, chosen.processes / len(cells))
    asked = [(*cell, share, chosen.out) for cell in cells]
    print("| | epochs | start: MR, MRR, Hit@10 | + Bernoulli | + IGAN |")
    print("|---|---|---|---|---|")
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        for rows in pool.imap(run, asked):
            texts = [f"{r['mr']:.0f}, {r['mrr']:.4f}, {100 * r['hits@10']:.1f}" for r in rows]
            epochs = f"{rows[0]['epoch']} + {rows[2]['epoch']}"
            cell = f"{rows[0]['data']}, {rows[0]['model']}"
            print(f"| {cell} | {epochs} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
