"""Ten million triples with two million entities: seconds and memory until training has started.

python benchmarks/big_graph.py [--triples N] [--entities N] [--repeat N]

The file is made in a temporary folder, the same with every call. Each repeat is a process of its
own; the peak is that of its resident memory, with Python, NumPy and PyTorch in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RELATIONS = 500
CHUNK = 1_000_000


def make(path: Path, triples: int, entities: int, seed: int = 0) -> None:
    """Write a TSV in which each entity occurs, a few of them very often."""
    random = np.random.default_rng(seed)
    number = random.permutation(10 * entities)[:entities]  # as Wikidata's ids: with gaps
    names = [f"Q{n}" for n in number.tolist()]
    relations = [f"P{n}" for n in range(1, RELATIONS + 1)]
    with path.open("w", encoding="ascii") as file:
        for begin in range(0, triples, CHUNK):
            n = min(CHUNK, triples - begin)
            head = np.arange(begin, begin + n) % entities
            relation = (RELATIONS * random.random(n) ** 3).astype(int)
            tail = (entities * random.random(n) ** 2).astype(int)
            rows = zip(head.tolist(), relation.tolist(), tail.tolist(), strict=True)
            file.writelines(f"{names[h]}\t{relations[r]}\t{names[t]}\n" for h, r, t in rows)


Done = tuple[str, float, float, float]
"""What is done, seconds since the start by the clock and on the processor, peak MiB so far."""


def measure(path: Path) -> list[Done]:
    """Load, index, and make one step of training."""
    began = time.perf_counter()
    found: list[Done] = []

    def done(what: str) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append((what, time.perf_counter() - began, time.process_time(), peak))

    from nscaching import KnowledgeGraph, TrainConfig
    from nscaching.training.trainer import Trainer

    done("imports")
    graph = KnowledgeGraph.load(path)
    done("load, split, check")
    assert len(graph.train_keys) == 2
    done("index of train, keys of the cache")
    assert len(graph.filter_index) == 2
    done("filter index")
    assert len(graph.head_probability) == len(graph.relations)
    done("relation statistics")
    assert graph.fingerprint
    done("fingerprint")
    config = TrainConfig().changed(
        model="TransE", dim=20, n1=5, n2=5, batch_size=4096, optimizer="row-adam", device="cpu"
    )
    trainer = Trainer(graph, config)
    done("triples as tensors, caches filled (TransE, d = 20, N1 = 5)")
    trainer.step(config.batch_size)
    done("the first step")
    found.append((repr(graph), 0.0, 0.0, 0.0))
    return found


def main() -> None:
    """Make the file, measure in fresh processes, print the quickest and the range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.tsv"
        make(path, asked.triples, asked.entities)
        print(f"{path.stat().st_size / 1e6:.0f} MB of TSV, {asked.repeat} processes\n")
        command = [sys.executable, __file__, "--measure", str(path)]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(asked.repeat)]  # noqa: S603
    *best, (graph, *_) = min(runs, key=lambda run: run[-2][1])
    print(f"{graph}\n\n| done | seconds | on the processor | peak MiB |\n|---|---|---|---|")
    for what, seconds, busy, peak in best:
        print(f"| {what} | {seconds:.1f} | {busy:.1f} | {peak:,.0f} |")
    totals = ", ".join(f"{run[-2][1]:.1f} s ({run[-2][2]:.1f} s)" for run in runs)
    print(f"\nall repeats: {totals}")


if __name__ == "__main__":
    main()
