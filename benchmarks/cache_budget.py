"""MRR against the memory of the caches: a row for each query, for 2, 4 or 8, for a relation; none.

python benchmarks/cache_budget.py [--epochs 200] [--seeds 3] [--data fb15k237 wn18rr] \
    [--models TransE ComplEx] [--device auto] [--out cache_budget.jsonl]

Settings are those of the presets DATA-MODEL:cache, for Bernoulli sampling also those of
DATA-MODEL:paper, which were found for it; the epochs are fewer. Trainings run one after another in
one process, and each appends a line to --out. The table comes last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.data.index import Side
from nscaching.evaluation.ranks import metrics
from nscaching.paper import presets
from nscaching.samplers.shared_rows import ID, least_rows
from nscaching.training.trainer import Trainer

Row = dict[str, Any]
SHARES = {"own rows": None, "1/2": "50%", "1/4": "25%", "1/8": "12.5%"}


def ways(graph: KnowledgeGraph, name: str) -> Iterator[tuple[str, TrainConfig]]:
    """Yield the name and the settings of each way to draw negatives."""
    cached = presets.load(name, "cache")[1]
    least = f"{least_rows(graph.train_index) * ID * cached.cache.n1}B"
    for what, budget in {**SHARES, "a row a relation": least}.items():
        yield what, cached.changed(cache_memory=budget)
    yield "Bernoulli", cached.changed(sampler="bernoulli")
    yield "Bernoulli, own settings", presets.load(name, "paper")[1].changed(sampler="bernoulli")


def measure(graph: KnowledgeGraph, config: TrainConfig) -> Row:
    """Train once and return test MRR, seconds, and the rows and bytes of the caches."""
    trainer = Trainer(graph, config)
    for _ in trainer.train():
        pass  # which ends with a ranking of the test triples
    test = metrics(
        np.concatenate([each.resolve("realistic") for each in trainer.ranks["test"].values()])
    )
    cache = getattr(trainer.sampler, "cache", None)
    rows = sum(map(len, cache.rows.values())) if cache else 0
    finding = sum(shared.nbytes for shared in cache.shared.values()) if cache else 0
    return {
        "mrr": test["mrr"],
        "hit@10": test["hits@10"],
        "seconds": trainer.seconds,
        "rows": rows,
        "bytes": rows * ID * config.cache.n1 + finding,
    }


def table(found: list[Row]) -> None:
    """Print mean and standard deviation over the seeds, beside the change from own rows."""
    for name in dict.fromkeys(row["name"] for row in found):
        mine = [row for row in found if row["name"] == name]
        print(f"\n{name}, {mine[0]['epochs']} epochs, {mine[0]['keys']:,} queries")
        print(
            f"  {'caches':24} {'rows':>8} {'MiB':>7}  test MRR (sd)       change   Hit@10  seconds"
        )
        whole = None
        for way in dict.fromkeys(row["way"] for row in mine):
            some = [row for row in mine if row["way"] == way]
            mrr, hit, seconds = ([row[key] for row in some] for key in ("mrr", "hit@10", "seconds"))
            mean = statistics.mean(mrr)
            spread = statistics.stdev(mrr) if len(mrr) > 1 else 0.0
            whole = mean if whole is None else whole
            print(
                f"  {way:24} {some[0]['rows']:8,} {some[0]['bytes'] / 2**20:7.2f}"
                f"  {mean:.4f} ({spread:.4f})  {100 * (mean / whole - 1):+6.1f} %"
                f"   {statistics.mean(hit):.4f}  {statistics.mean(seconds):7.1f}"
            )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="+", default=["fb15k237", "wn18rr"])
    parser.add_argument("--models", nargs="+", default=["TransE", "ComplEx"])
    parser.add_argument("--ways", nargs="+", help="some of the ways, by name")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("cache_budget.jsonl"))
    asked = parser.parse_args()
    found: list[Row] = []
    began = time.perf_counter()
    for data in asked.data:
        graph = KnowledgeGraph.load(data)
        keys = sum(len(graph.train_index[side]) for side in Side)
        for model in asked.models:
            name = f"{data}-{model.lower()}"
            for way, config in ways(graph, name):
                if asked.ways and way not in asked.ways:
                    continue
                for seed in range(asked.seeds):
                    changed = {"epochs": asked.epochs, "validate_every": 0, "seed": seed}
                    row = measure(graph, config.changed(device=asked.device, **changed))
                    row |= {"name": name, "way": way, "keys": keys, **changed}
                    found.append(row)
                    with asked.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    spent = time.perf_counter() - began
                    print(
                        f"{spent:6.0f} s  {name} {way} seed {seed}: MRR {row['mrr']:.4f}",
                        flush=True,
                    )
    table(found)


if __name__ == "__main__":
    main()
