"""Loops compiled by Numba once for all workers, who would each compile all of them."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import torch

from helpers import new_kernels, new_model, random_graph, random_steps
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import Learning
from refreshes import one_case

LEARNING = Learning("margin", 4.0, 0.01, 0.0)


def _step() -> None:
    model = new_model("TransD")
    learner = new_kernels("numba").learner(model, LEARNING)
    learner.step(*random_steps(model, [2])[0], torch.zeros(4, dtype=torch.float64))


def _many() -> None:
    model = new_model("TransD")
    batch, negatives = random_steps(model, [2])[0]
    learner = new_kernels("numba").learner(
        model, dataclasses.replace(LEARNING, objective="shifted")
    )
    learner.step(batch, negatives, torch.zeros(4, dtype=torch.float64))


def _queries() -> None:
    model = new_model("RotatE")
    learner = new_kernels("numba").learner(model, LEARNING)
    learner.step(*random_steps(model, [2])[0], torch.zeros(4, dtype=torch.float64))


def _refresh_and_rank() -> None:
    kernels, graph = new_kernels("numba"), random_graph()
    case = one_case(batch=2, name="TransD")
    kernels.learner(case.model, LEARNING)  # with one, queries are compiled too
    case.refreshed(kernels)
    rank(new_model("TransE", 12, 3), Queries(graph, graph.test), kernels=kernels)
    rows = torch.ones(2, 4, requires_grad=True)
    kernels.distances(rows, rows, 1).sum().backward()


def _shards() -> None:
    import ranks  # here: it imports the command line
    from nscaching.sharded.launch import alone

    with alone() as world:
        for model in ("TransE", "RotatE"):
            ranks.steps(world, {"model": model, "kernels": "numba"}, 1)


def compile_together(folder: Path) -> None:
    """Compile this worker's share, then wait for the others; what is compiled lies on disk."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return  # what is needed compiles when it is
    # Two shares that take about as long.
    for share in [[_step, _queries, _many], [_refresh_and_rank, _shards]][worker::workers]:
        for part in share:
            part()
    (folder / f"compiled-{worker}").touch()
    late = time.monotonic() + 60
    while len(list(folder.glob("compiled-*"))) < workers and time.monotonic() < late:
        time.sleep(0.05)
