"""Quality against seconds: the full softmax, the cached softmax, its tail alone, a cached negative.

python benchmarks/softmax.py [--data fb15k237 wn18rr] [--device auto] [--epochs 60] [--speed]

ComplEx, d = 200, batch 1024, Adagrad 0.1, N3, reciprocal relations; one run after another in one
process. Writes softmax-DATA.json and a figure of the same name into --out. With --speed only
seconds of steps are measured: the least of several rounds, in which the ways take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from speed import machine, show, wait

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.kernels import choose_device
from nscaching.training.trainer import Trainer

Row = dict[str, Any]
COMMON = {"model": "ComplEx", "dim": 200, "batch_size": 1024}
SOFTMAX = COMMON | {
    "optimizer": "adagrad", "lr": 0.1, "penalty_norm": "n3", "reciprocal": True,
}  # fmt: skip
PENALTY = {"fb15k237": 0.1, "wn18rr": 0.2}
# One cached negative learns by Adam, with the penalty that was found for it.
ONE = COMMON | {"sampler": "nscaching", "penalty_norm": "n3"}
ONE_OF = {
    "fb15k237": {"lr": 0.0003, "penalty": 0.01, "batch_size": 4096},
    "wn18rr": {"lr": 0.002, "penalty": 0.02, "temperature": 1.4},
}


def ways(data: str, sizes: list[tuple[int, int]]) -> Iterator[tuple[str, Row]]:
    """Yield the name and the settings of each way to learn; sizes are (N1, K)."""
    softmax = SOFTMAX | {"penalty": PENALTY[data]}
    yield "full softmax", softmax | {"sampler": "none", "objective": "1vsall"}
    for n1, tail in sizes:
        own = {"sampler": "nscaching", "objective": "softmax", "refresh": "top"}
        name = f"cache {n1} + tail {tail:,}" if n1 else f"tail {tail:,} alone"
        yield name, softmax | own | {"n1": n1, "tail": tail}
    yield "one cached negative", ONE | ONE_OF[data]


def step_seconds(graph: KnowledgeGraph, data: str, device: torch.device) -> Iterator[Row]:
    """Time steps after a warm-up, way by way, round after round."""
    trainers = {}
    for name, settings in ways(data, [(64, 512), (0, 512)]):
        config = TrainConfig.from_dict(settings | {"device": device.type, "batch_size": 1024})
        trainers[name] = trainer = Trainer(graph, config)
        trainer.sampler.begin_epoch(1)
        for size in islice(trainer.triples.sizes(1024), 3):
            trainer.step(size)
    seconds: dict[str, float] = dict.fromkeys(trainers, math.inf)
    steps = 100 if device.type == "cuda" else 5
    for _ in range(4):
        for name, trainer in trainers.items():
            trainer.triples.go_to(1, 0)
            sizes = list(islice(trainer.triples.sizes(1024), steps))
            wait(device)
            began = time.perf_counter()
            for each in sizes:
                trainer.step(each)
            wait(device)
            seconds[name] = min(seconds[name], (time.perf_counter() - began) / steps)
    for name, taken in seconds.items():
        row = {"way": name, "ms a step": 1e3 * taken}
        row["s an epoch"] = taken * math.ceil(len(graph.train) / 1024)
        yield row | {"times faster than full": seconds["full softmax"] / taken}


def trainings(graph: KnowledgeGraph, data: str, device: torch.device, epochs: int) -> Iterator[Row]:
    """Train each way, validating in between; the test triples are ranked at the best epoch."""
    sizes = [(64, 128), (64, 512), (64, 1024), (0, 192), (0, 576), (0, 1088)]
    for name, settings in ways(data, sizes):
        every = max(1, epochs // 12)
        if name == "one cached negative":
            every *= 5
        config = TrainConfig.from_dict(
            settings
            | {"epochs": 12 * every, "validate_every": every, "device": device.type, "seed": 1}
        )
        records = [r for r in Trainer(graph, config).train() if isinstance(r, dict)]
        curve = [
            [r["epoch"], r["trained_seconds"], r["mrr"]]
            for r in records
            if r.get("split") == "valid"
        ]
        best = max(curve, key=lambda point: point[2])
        epoch_seconds = sorted(r["seconds"] for r in records if "split" not in r)
        test = next(r for r in records if r.get("split") == "test")
        row = {"way": name, "s an epoch": epoch_seconds[len(epoch_seconds) // 2]}
        row |= {"best epoch": best[0], "seconds": best[1], "valid MRR": best[2]}
        row |= {"test MRR": test["mrr"], "test Hit@10": test["hits@10"], "curve": curve}
        show(f"{data}: {name}", [{k: v for k, v in row.items() if k != "curve"}])
        yield row


def plot(data: str, device: str, rows: list[Row], path: Path) -> None:
    """Draw quality against seconds, and against N1 + K."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (curves, sizes) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for row in rows:
        _, seconds, mrr = zip(*row["curve"], strict=True)
        curves.plot(seconds, mrr, ".-", label=row["way"])
    curves.set(xscale="log", xlabel="seconds of training", ylabel="validation MRR")
    curves.set_title(f"{data}, ComplEx, d = 200, {device}", fontsize=10)
    curves.legend(fontsize=7)
    for label, start in (("cache 64 + tail", "cache"), ("tail alone", "tail")):
        found = [row for row in rows if row["way"].startswith(start)]
        numbers = [
            [int(w.replace(",", "")) for w in r["way"].split() if w[0].isdigit()] for r in found
        ]
        total = [sum(each) for each in numbers]
        sizes.plot(total, [row["test MRR"] for row in found], "o-", label=label)
    full = next(row for row in rows if row["way"] == "full softmax")
    sizes.axhline(full["test MRR"], color="gray", linestyle="--", label="full softmax")
    sizes.set(xscale="log", xlabel="N1 + K", ylabel="test MRR")
    sizes.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["fb15k237", "wn18rr"], choices=[*PENALTY])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--speed", action="store_true", help="seconds of steps only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    device = choose_device(chosen.device)
    torch.set_flush_denormal(True)  # as ``train`` does
    about = machine(device, math.nan)
    del about["copy_bandwidth"]
    sys.stdout.write(json.dumps(about) + "\n")
    for data in chosen.data:
        graph = KnowledgeGraph.load(data)
        if chosen.speed:
            show(f"{data}: steps", list(step_seconds(graph, data, device)))
            continue
        rows = list(trainings(graph, data, device, chosen.epochs))
        short = [{k: v for k, v in row.items() if k != "curve"} for row in rows]
        show(f"{data}, {about['device']}", short)
        chosen.out.mkdir(parents=True, exist_ok=True)
        target = chosen.out / f"softmax-{data}.json"
        target.write_text(json.dumps({"machine": about, "rows": rows}) + "\n", encoding="utf-8")
        plot(data, about["device"], rows, target.with_suffix(".png"))


if __name__ == "__main__":
    main()
