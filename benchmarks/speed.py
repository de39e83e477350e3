"""Seconds per epoch and per ranking on this machine, beside the plain path and the bare memory.

python benchmarks/speed.py [--data fb15k237] [--device auto] [--parts epochs ranking growth profile]
    [--models ComplEx TransE …] [--dim 100] [--batch-size 4096] [--fast-only]

Writes speed-cpu.json or speed-cuda.json and a plot of the same name into --out.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.data.index import Side
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import choose_device, choose_kernels
from nscaching.training.trainer import Trainer

MODELS = ["ComplEx", "TransE", "TransD", "TransH", "DistMult"]
SETTINGS: dict[str, Any] = {"batch_size": 4096, "dim": 100, "n1": 50, "n2": 50}
WARM_UP = 2  # epochs: the first compiles, the second records CUDA graphs

Row = dict[str, Any]


def wait(device: torch.device) -> None:
    """Let the device finish."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes per second that a large copy reads and writes."""
    source = torch.empty((1 << 30 if device.type == "cuda" else 1 << 28) // 4, device=device)
    target, seconds = torch.empty_like(source), []
    for _ in range(10):
        wait(device)
        began = time.perf_counter()
        target.copy_(source)
        wait(device)
        seconds.append(time.perf_counter() - began)
    return 2 * 4 * len(source) / min(seconds[2:])


def refresh_bytes(graph: KnowledgeGraph, trainer: Trainer) -> int:
    """Return the bytes of entity rows that the refreshes of an epoch read."""
    config, order = trainer.config, np.random.default_rng(0).permutation(len(graph.train))
    keys = 0
    for start in range(0, len(order), config.batch_size):
        rows = order[start : start + config.batch_size]
        keys += sum(len(np.unique(graph.train_keys[side][rows])) for side in Side)
    return keys * (config.cache.n1 + config.cache.n2) * trainer.model.entity.shape[1] * 4


def epoch_seconds(trainer: Trainer, epochs: int) -> tuple[float, float, float]:
    """Return the seconds of epochs after the warm-up, median and least, and those of the first."""
    seconds = []
    for epoch in range(1, WARM_UP + epochs + 1):
        wait(trainer.device)
        began = time.perf_counter()
        trainer.epoch(epoch)
        wait(trainer.device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[WARM_UP:]), min(seconds[WARM_UP:]), seconds[0]


def epochs(
    graph: KnowledgeGraph, device: torch.device, count: int, bandwidth: float, plain_too: bool
) -> Iterator[Row]:
    """Time an epoch of each model and sampler on the fast path and on the reference path."""
    for sampler in ("nscaching", "bernoulli"):
        for model in MODELS:
            settings = SETTINGS | {"model": model, "sampler": sampler, "device": device.type}
            trainer = Trainer(graph, TrainConfig.from_dict(settings))
            seconds, least, first = epoch_seconds(trainer, count)
            row = {"model": model, "sampler": sampler, "kernels": trainer.kernels.name}
            row |= {"seconds": seconds, "least": least, "first": first}
            if plain_too:
                plain = Trainer(graph, trainer.config.changed(kernels="reference"))
                row["reference"] = min(
                    plain.epoch(epoch)["seconds"] for epoch in (1, 2)[: 1 + (seconds < 1)]
                )
                row["faster"] = row["reference"] / seconds
            if sampler == "nscaching":
                row["bandwidth"] = refresh_bytes(graph, trainer) / seconds / bandwidth
            yield row


def ranking(graph: KnowledgeGraph, device: torch.device) -> Iterator[Row]:
    """Time the filtered ranking of both sides of all test triples."""
    queries = Queries(graph, graph.test, device=device)
    for name in MODELS:
        config = TrainConfig.from_dict(
            SETTINGS | {"model": name, "device": device.type, "sampler": "bernoulli"}
        )
        model, fast = Trainer(graph, config).model, choose_kernels("auto", device)
        seconds = {}
        for label, kernels in (
            ("seconds", fast),
            ("reference", choose_kernels("reference", device)),
        ):
            taken = []
            for _ in range(2 if device.type == "cpu" else 5):
                wait(device)
                began = time.perf_counter()
                rank(model, queries, kernels=kernels)
                taken.append(time.perf_counter() - began)
                if sum(taken) > 20:
                    break
            seconds[label] = min(taken)
        yield {"model": name, **seconds, "faster": seconds["reference"] / seconds["seconds"]}


def variants(graph: KnowledgeGraph) -> Iterator[tuple[str, float, KnowledgeGraph, Row]]:
    """Make what the growth is measured on: (what grows, its size, graph, settings)."""
    for n in (10, 25, 50, 100, 200):
        yield "N1 + N2", 2 * n, graph, {"n1": n, "n2": n}
    for dim in (25, 50, 100, 200, 400):
        yield "d", dim, graph, {"dim": dim}
    for dim in (100, 200, 400):
        yield "d, TransH", dim, graph, {"dim": dim, "model": "TransH"}
    for batch in (512, 1024, 2048, 4096, 8192):
        yield "batch", batch, graph, {"batch_size": batch}
    for part in (8, 4, 2, 1):
        train = np.random.default_rng(0).permutation(graph.train)[: len(graph.train) // part]
        yield "|S|", len(train), smaller(graph, train, len(graph.entities)), {}
    for times in (1, 4, 16, 64):
        more = times * len(graph.entities)
        grown = smaller(graph, graph.train, more)
        yield "|E|", more, grown, {}
        yield "|E|, row-adam", more, grown, {"optimizer": "row-adam"}


def smaller(graph: KnowledgeGraph, train: np.ndarray, entities: int) -> KnowledgeGraph:
    """Return a graph with these training triples and so many entities, most of them unused."""
    names = [*graph.entities, *(f"unused {i}" for i in range(entities - len(graph.entities)))]
    none = graph.valid[:0]
    splits = {"train": train, "valid": none, "test": none}
    return KnowledgeGraph.from_arrays(names, list(graph.relations), splits)


def growth(graph: KnowledgeGraph, device: torch.device, count: int) -> Iterator[Row]:
    """Time epochs (of TransE, unless said) as one size grows and the others stay."""
    for what, size, changed, settings in variants(graph):
        base = SETTINGS | {"model": "TransE", "device": device.type}
        trainer = Trainer(changed, TrainConfig.from_dict(base | settings))
        yield {"what": what, "size": size, "seconds": epoch_seconds(trainer, count)[0]}


def profile(graph: KnowledgeGraph, device: torch.device) -> Iterator[Row]:
    """Say where the time of a training step goes: by kernel on a GPU, by part of the step else."""
    for model, sampler in (
        ("ComplEx", "nscaching"),
        ("TransE", "nscaching"),
        ("TransE", "bernoulli"),
    ):
        settings = SETTINGS | {"model": model, "sampler": sampler, "device": device.type}
        trainer = Trainer(graph, TrainConfig.from_dict(settings))
        seconds = epoch_seconds(trainer, 2)[0]
        parts = kernel_seconds(trainer) if device.type == "cuda" else part_seconds(trainer)
        parts["everything else"] = max(0.0, seconds - sum(parts.values()))
        for part, taken in sorted(parts.items(), key=lambda item: -item[1]):
            if taken > 0.01 * seconds:
                row = {"model": model, "sampler": sampler, "part": part, "seconds": taken}
                yield row | {"share": taken / seconds}


def kernel_seconds(trainer: Trainer) -> dict[str, float]:
    """Return the seconds of an epoch that each kernel takes on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        trainer.epoch(99)
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in profiler.key_averages():
        ours = event.key.isidentifier()
        name = event.key if ours else "PyTorch's kernels and copies"
        found[name] = found.get(name, 0.0) + event.device_time_total / 1e6
    return found


def part_seconds(trainer: Trainer) -> dict[str, float]:
    """Return the seconds of an epoch that each part of the step takes."""
    found: dict[str, float] = {}

    def watch(owner: Any, name: str, what: str) -> None:  # noqa: ANN401
        inner = getattr(owner, name)

        def timed(*arguments: Any) -> Any:  # noqa: ANN401
            began = time.perf_counter()
            result = inner(*arguments)
            found[what] = found.get(what, 0.0) + time.perf_counter() - began
            return result

        setattr(owner, name, timed)

    watch(trainer.triples, "batch", "gathering the batch")
    watch(trainer.sampler, "sample", "drawing")
    watch(trainer.sampler, "update", "refreshing")
    watch(trainer.learner, "step", "gradient step and Adam")
    trainer.epoch(99)
    return found


def machine(device: torch.device, bandwidth: float) -> Row:
    """Say what this was measured on."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name()
    else:
        found = (
            [
                line.split(":")[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ]
            if Path("/proc/cpuinfo").exists()
            else [platform.processor()]
        )
        name = f"{found[0]}, {torch.get_num_threads()} threads"
    return {
        "device": name, "torch": torch.__version__, "python": platform.python_version(),
        "copy_bandwidth": bandwidth,
    }  # fmt: skip


def show(title: str, rows: list[Row]) -> None:
    """Print rows as a Markdown table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        cells = [row.get(name, "") for name in names]
        print(
            "| " + " | ".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + " |"
        )
    sys.stdout.flush()


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw seconds per epoch beside the reference, and the growth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (bars, lines) = plt.subplots(1, 2, figsize=(15, 5), layout="constrained")
    rows = [row for row in results.get("epochs", []) if "reference" in row]
    names = [f"{row['model']}\n{row['sampler']}" for row in rows]
    place = np.arange(len(rows))
    bars.bar(place - 0.2, [row["reference"] for row in rows], 0.4, label="reference path")
    bars.bar(place + 0.2, [row["seconds"] for row in rows], 0.4, label="fast path")
    bars.set(yscale="log", ylabel="seconds per epoch", title=results["machine"]["device"])
    bars.set_xticks(place, names, fontsize=7)
    if rows:
        bars.legend()
    grown: dict[str, list[Row]] = {}
    for row in results.get("growth", []):
        grown.setdefault(row["what"], []).append(row)
    for what, points in grown.items():
        sizes = [point["size"] / points[0]["size"] for point in points]
        lines.plot(sizes, [point["seconds"] for point in points], "o-", label=what)
    lines.set(xscale="log", yscale="log", xlabel="times its smallest size")
    lines.set(ylabel="seconds per epoch", title="TransE, nscaching: growth")
    if grown:
        lines.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print tables, write JSON and plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--parts", nargs="+", default=["epochs", "ranking", "growth", "profile"])
    parser.add_argument("--models", nargs="+", default=MODELS, help="of epochs and rankings")
    parser.add_argument("--dim", type=int, default=SETTINGS["dim"])
    parser.add_argument("--batch-size", type=int, default=SETTINGS["batch_size"])
    parser.add_argument("--fast-only", action="store_true", help="without the reference path")
    parser.add_argument("--epochs", type=int, default=0, help="to time; 0: 10 on a GPU, 2 else")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    MODELS[:] = chosen.models
    SETTINGS.update(dim=chosen.dim, batch_size=chosen.batch_size)
    device = choose_device(chosen.device)
    graph = KnowledgeGraph.load(chosen.data)
    count = chosen.epochs or (10 if device.type == "cuda" else 2)
    torch.set_flush_denormal(True)  # as ``train`` does
    bandwidth = copy_bandwidth(device)
    results: dict[str, Any] = {"machine": machine(device, bandwidth), "data": graph.name}
    print(json.dumps(results["machine"], indent=1))
    if "epochs" in chosen.parts:
        results["epochs"] = list(epochs(graph, device, count, bandwidth, not chosen.fast_only))
        show("Seconds per epoch", results["epochs"])
    if "ranking" in chosen.parts:
        results["ranking"] = list(ranking(graph, device))
        show("Seconds per filtered ranking of the test triples, both sides", results["ranking"])
    if "growth" in chosen.parts:
        results["growth"] = list(growth(graph, device, count))
        show("Growth of an epoch of TransE with nscaching", results["growth"])
    if "profile" in chosen.parts:
        results["profile"] = list(profile(graph, device))
        show("Where an epoch goes", results["profile"])
    chosen.out.mkdir(parents=True, exist_ok=True)
    target = chosen.out / f"speed-{device.type}.json"
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    figure = target.with_suffix(".png")
    plot(results, figure)
    print(f"\nwritten: {target} and {figure}")


if __name__ == "__main__":
    main()
