"""The search behind src/nscaching/presets: stages of longer trainings of fewer settings.

python benchmarks/search_presets.py SAMPLER STAGE [--data …] [--seconds 300] [--workers 4]

SAMPLER is bernoulli (the paper's grid, for [paper]) or nscaching (a wider one, for [cache]).
Stage 1 tries settings on TransE and DistMult, stage 2 the best of them on every model of the same
family, stage 3 the best of those for as long as the paper trains. Each training is a line of
benchmarks/results/presets-SAMPLER.jsonl; what is there already is not trained again, so that a
stage may be stopped and called again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import queue
import random
import sys
import time
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

FAMILIES = {
    "TransE": ("TransE", "TransH", "TransD"),
    "DistMult": ("DistMult", "ComplEx"),
}
DATA = ("wn18rr", "fb15k237", "wn18", "fb15k")
# Epochs of stages 1 and 2: about as long on each data set.
EPOCHS = {"wn18rr": (200, 400), "wn18": (150, 400), "fb15k237": (80, 300), "fb15k": (50, 200)}
LAST = {"bernoulli": 3000, "nscaching": 1000}
KEPT = (4, 2)  # settings that come from stage 1 and from stage 2 to the next, of each cell

PAPER: dict[str, Settings] = {
    "TransE": {"dim": [50, 100, 200], "lr": [1e-4, 1e-3, 1e-2], "margin": [1.0, 2.0, 3.0, 4.0]},
    "DistMult": {"dim": [50, 100, 200], "lr": [1e-4, 1e-3, 1e-2], "penalty": [1e-3, 1e-2, 1e-1]},
}
WIDE: dict[str, Settings] = {
    "TransE": {
        "dim": [100, 200],
        "lr": [5e-4, 1e-3, 2e-3],
        "margin": [2.0, 3.0, 4.0, 6.0, 8.0, 10.0],
        "norm": [1, 2],
        "temperature": [1.0, 2.0],
        "side": ["bernoulli", "uniform"],
    },
    "DistMult": {
        "dim": [100, 200],
        "lr": [3e-4, 1e-3, 3e-3],
        "penalty": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
        "temperature": [1.0, 2.0],
        "side": ["bernoulli", "uniform"],
    },
}
BATCHES = {"bernoulli": [1024], "nscaching": [1024, 4096]}


def grid(sampler: str, family: str, count: int) -> list[Settings]:
    """Return some points of the grid, the same with every call."""
    axes = (PAPER if sampler == "bernoulli" else WIDE)[family]
    axes = {**axes, "batch_size": BATCHES[sampler]}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    random.Random(0).shuffle(points)  # noqa: S311
    return points[:count]


def identity(trial: Settings) -> str:
    """Return what tells a trial from others."""
    names = ("data", "model", "settings", "epochs", "seed")
    return json.dumps({name: trial[name] for name in names}, sort_keys=True)


def best(found: list[Settings], data: str, model: str, epochs: int, count: int) -> list[Settings]:
    """Return the best settings of a cell among trainings of so many epochs."""
    mine = [r for r in found if (r["data"], r["model"], r["epochs"]) == (data, model, epochs)]
    mine = [r for r in mine if "mrr" in r]
    return [r["settings"] for r in sorted(mine, key=lambda r: -r["mrr"])[:count]]


def trials(chosen: argparse.Namespace, found: list[Settings]) -> list[Settings]:
    """Return what a stage trains."""
    todo = []
    for data, (family, models) in itertools.product(chosen.data, FAMILIES.items()):
        first, second = EPOCHS[data]
        last = LAST[chosen.sampler]
        for model in models:
            if chosen.models and model not in chosen.models:
                continue
            if chosen.stage == 1 and model == family:
                settings, epochs = grid(chosen.sampler, family, chosen.points), first
            elif chosen.stage == 2:
                settings, epochs = best(found, data, family, first, KEPT[0]), second
            elif chosen.stage == 3:
                settings, epochs = best(found, data, model, second, KEPT[1]), last
            else:
                continue
            for each in settings:
                trial = {"data": data, "model": model, "settings": each, "epochs": epochs}
                todo.append({**trial, "seed": 1})
    done = {identity(row) for row in found}
    todo = [trial for trial in todo if identity(trial) not in done]
    # Every cell gets its turn, should time run out.
    random.Random(1).shuffle(todo)  # noqa: S311
    return todo


def work(sampler: str, todo: Any, path: Path, lock: Any, end: float) -> None:  # noqa: ANN401
    """Train what is in the queue until time is up."""
    from nscaching import KnowledgeGraph, UserError, train

    graphs: dict[str, KnowledgeGraph] = {}
    while time.time() < end:
        try:
            trial = todo.get(timeout=2)
        except queue.Empty:
            return
        began, row = time.perf_counter(), dict(trial)
        if trial["data"] not in graphs:
            graphs[trial["data"]] = KnowledgeGraph.load(trial["data"])
        every = max(10, trial["epochs"] // 20)
        settings = {"model": trial["model"], "sampler": sampler, **trial["settings"]}
        settings |= {"epochs": trial["epochs"], "seed": trial["seed"], "validate_every": every}
        try:
            run = train(graphs[trial["data"]], **settings)
            row["mrr"], row["epoch"] = run.result("valid")["mrr"], run.best_epoch
            row["seconds"] = round(run.train_seconds, 2)
        except UserError as error:  # such as a loss that is no number
            row["error"] = str(error)
        row["all_seconds"] = round(time.perf_counter() - began, 2)
        with lock, path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            said = row.get("error") or f"{row['mrr']:.4f} at {row['epoch']}"
            print(trial["data"], trial["model"], trial["settings"], said, row["all_seconds"])
            sys.stdout.flush()


def main() -> None:
    """Carry out a stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sampler", choices=list(LAST))
    parser.add_argument("stage", type=int, choices=[1, 2, 3])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--points", type=int, default=20, help="settings of stage 1")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    path = chosen.out / f"presets-{chosen.sampler}.jsonl"
    found = []
    if path.exists():
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    todo = trials(chosen, found)
    print(f"{len(found)} trainings found, {len(todo)} to do")
    # Processes side by side take turns on a GPU, but one may compile while another trains.
    context = multiprocessing.get_context("spawn")
    waiting, lock, end = context.Queue(), context.Lock(), time.time() + chosen.seconds
    for trial in todo:
        waiting.put(trial)
    arguments = (chosen.sampler, waiting, path, lock, end)
    workers = [context.Process(target=work, args=arguments) for _ in range(chosen.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    waiting.cancel_join_thread()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
