"""Training over several processes: equal figures, bytes between them, strata, and kills.

python benchmarks/shards.py equal [--data wn18rr] [--processes 2] [--epochs 30]
python benchmarks/shards.py strata [--data fb15k237] [--strata 4] [--epochs 30]
python benchmarks/shards.py kills [--kills 20]
python benchmarks/shards.py links

``equal`` trains by one process and by several, and compares figures, seconds and bytes with the
formula. ``strata`` trains by one process with and without strata, as so many machines would.
``kills`` kills processes of torchrun at random moments and compares the end with that of a
training without kills. ``links`` computes what links between GPUs leave of the speed of one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from nscaching import KnowledgeGraph, Run, TrainConfig
from nscaching.data.index import Side
from nscaching.sharded.traffic import Training

MODELS = ("TransE", "ComplEx")
SETTINGS = {
    "TransE": {"norm": 1, "margin": 4.0, "lr": 0.003, "dim": 50, "batch_size": 1024},
    "ComplEx": {"lr": 0.01, "dim": 50, "batch_size": 1024, "penalty": 0.001},
}
# Bytes a second that a GPU, or a machine of one GPU, sends to others while it receives as many.
LINKS = {"NVLink": 450e9, "100 Gbit/s": 12.5e9, "25 Gbit/s": 3.1e9}
# Positives a second of one H200 with the cache, and bytes of Wikidata5M's size (docs/scale.md).
SPEEDS = {"TransE": 18.6e6, "ComplEx": 10.1e6}


def command(data: str, out: Path, config: dict[str, Any], processes: int) -> list[str]:
    named = {f"--{name.replace('_', '-')}": str(value) for name, value in config.items()}
    flags = [word for pair in named.items() for word in pair]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    start = [*launch, "-m", "nscaching"] if processes > 1 else ["-m", "nscaching"]
    return [sys.executable, *start, "train", data, *flags, "--plain", "--out", str(out)]


def train(data: str, out: Path, config: dict[str, Any], processes: int = 1) -> Run:
    done = subprocess.run(  # noqa: S603
        command(data, out, config, processes), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return Run.load(out)


def keys_of_triple(graph: KnowledgeGraph, batch: int) -> float:
    """Return the different queries of both sides in a batch, for each of its triples."""
    order = torch.randperm(len(graph.train), generator=torch.Generator().manual_seed(0))
    some = order[:batch].numpy()
    return sum(len(set(graph.train_keys[side][some].tolist())) for side in Side) / len(some)


def equal(data: str, processes: int, epochs: int, base: Path) -> None:
    graph = KnowledgeGraph.load(data)
    print("model | processes | test MRR | Hit@10 | seconds an epoch | bytes a triple, by formula")
    for model in MODELS:
        for size in (1, processes):
            config = {**SETTINGS[model], "model": model, "epochs": epochs, "seed": 1}
            config |= {"device": "cpu", "validate_every": epochs, "threads": 2 // size}
            run = train(data, base / f"{model}-{size}", config, size)
            test, last = run.result("test"), [r for r in run.history if "split" not in r][-1]
            assert test is not None
            sent = sum(kind["bytes"] for kind in last.get("sent", {}).values()) / len(graph.train)
            settings = TrainConfig().changed(**config)
            batch, numbers = settings.batch_size, run.model.relation.numel()
            formula = Training(
                size, run.model.entity.shape[1], batch, numbers, n1=settings.cache.n1,
                n2=settings.cache.n2, keys=keys_of_triple(graph, batch), compiled=True,
            )  # fmt: skip
            expected = sum(formula.bytes_of_triple().values()) if size > 1 else 0
            seconds = run.train_seconds / epochs
            figures = f"{test['mrr']:.4f} | {test['hits@10']:.4f} | {seconds:.2f}"
            print(f"{model} | {size} | {figures} | {sent:,.0f}, {expected:,.0f}", flush=True)


def strata(data: str, count: int, epochs: int, base: Path) -> None:
    print("model | refresh | test MRR | Hit@10")
    for model in MODELS:
        for name, sampler, number in (
            ("scores", "nscaching", 0),
            (f"strata, {count} shards", "nscaching", count),
            ("Bernoulli, no cache", "bernoulli", 0),
        ):
            config = {**SETTINGS[model], "model": model, "epochs": epochs, "seed": 1, "n1": 48}
            config |= {"n2": 48, "strata": number, "sampler": sampler, "validate_every": epochs}
            run = train(data, base / f"{model}-{sampler}-{number}", config)
            test = run.result("test")
            assert test is not None
            print(f"{model} | {name} | {test['mrr']:.4f} | {test['hits@10']:.4f}", flush=True)


def _without_clocks(file: Path) -> list[dict[str, Any]]:
    """Return the records of a run, without seconds and without what was sent."""
    records = map(json.loads, file.read_text().splitlines())
    return [{k: v for k, v in r.items() if "seconds" not in k and k != "sent"} for r in records]


def kills(number: int, base: Path) -> None:
    """Kill processes of one training until it has had so many kills."""
    config = {"model": "TransE", "dim": 16, "epochs": 200, "lr": 0.01, "seed": 1, "device": "cpu"}
    config |= {"checkpoint_every": 0.5, "batch_size": 128}
    train("world", base / "whole", config, 2)
    words, chance, done = command("world", base / "killed", config, 2), random.Random(3), 0  # noqa: S311
    at = words.index("-m", 3)
    words[at:at] = ["--max-restarts", str(2 * number)]
    with (base / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)  # noqa: S603
        while process.poll() is None and done < number:
            time.sleep(chance.uniform(1.0, 12.0))
            found = subprocess.run(  # noqa: S603
                ["ps", "-o", "pid=", "--ppid", str(process.pid)],  # noqa: S607
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if workers := found.stdout.split():
                os.kill(int(chance.choice(workers)), signal.SIGKILL)
                done += 1
        code = process.wait()
    one, other = (Run.load(base / name).model.state_dict() for name in ("whole", "killed"))
    same = all(torch.equal(one[name], other[name]) for name in one)
    records = [_without_clocks(base / name / "metrics.jsonl") for name in ("whole", "killed")]
    print(f"{done} kills, exit code {code}; parameters {'equal' if same else 'DIFFER'}")
    print(f"metrics {'equal' if records[0] == records[1] else 'DIFFER'}")


def links() -> None:
    print("model, GPUs | exchange | bytes a positive |", " | ".join(LINKS), "| M positives/s")
    for model, speed in SPEEDS.items():
        width = 100 if model == "TransE" else 200
        for count in (8, 64):
            for name, number in (("scores", 0), ("strata", count)):
                n1 = 64 if number else 50
                formula = Training(
                    count, width, 16384 * count, 822 * width, n1=n1, n2=n1, strata=number,
                    compiled=True,
                )  # fmt: skip
                sent = sum(formula.bytes_of_triple().values())
                # A positive is computed by one GPU and sent by all: both take their time.
                rates = [count / (1 / speed + sent / link) / 1e6 for link in LINKS.values()]
                shown = " | ".join(f"{rate:,.1f}" for rate in rates)
                print(f"{model}, {count} | {name} | {sent:,.0f} | {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("equal", "strata", "kills", "links"))
    parser.add_argument("--data", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--strata", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        if asked.what == "equal":
            equal(asked.data or "wn18rr", asked.processes, asked.epochs, base)
        elif asked.what == "strata":
            strata(asked.data or "fb15k237", asked.strata, asked.epochs, base)
        elif asked.what == "kills":
            kills(asked.kills, base)
        else:
            links()


if __name__ == "__main__":
    main()
