"""Seconds and bytes of a checkpoint.

python benchmarks/checkpoints.py world fb15k237
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.runs.checkpoints import Checkpoints
from nscaching.training.trainer import Trainer


def measure(data: str, model: str, times: int = 7) -> str:
    """Write some checkpoints of a training that has a best epoch already; return a table row."""
    config = TrainConfig().changed(model=model, n1=50, n2=50, dim=100)
    trainer = Trainer(KnowledgeGraph.load(data), config)
    trainer.step(4096)
    trainer.keep(1)
    written, read = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        for _ in range(times):
            began = time.perf_counter()
            path = checkpoints.save(trainer.checkpoint())
            written.append(time.perf_counter() - began)
            began = time.perf_counter()
            state = checkpoints.newest(print)
            assert state is not None
            trainer.restore(state)
            read.append(time.perf_counter() - began)
        size = path.stat().st_size / 1e6
    figures = [statistics.median(written), max(written), statistics.median(read)]
    seconds = " | ".join(f"{figure:.2f}" for figure in figures)
    return f"| {data}, {model} | {size:.0f} | {seconds} |"


if __name__ == "__main__":
    print("| | MB | seconds to write, median | most | to read and restore |\n|---|---|---|---|---|")
    for data in sys.argv[1:] or ["world"]:
        for model in ("TransE", "TransD"):
            print(measure(data, model))
