"""The search behind src/nscaching/paper/presets: stages of longer trainings of fewer settings.

python benchmarks/search_presets.py SAMPLER STAGE [--data …] [--seconds 300] [--workers 4]

SAMPLER is bernoulli (the paper's grid, for [paper]) or nscaching (a wider one, for [cache]).
Stage 1 changes one thing at a time around a centre, with TransE and DistMult. Stage 2 puts the
changes that helped together, for every model of the same family (for nscaching: those chosen
below). Stage 3 trains the best of those for as long as the paper does. Each training is a line of
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
# Epochs of stages 1 and 2: about as long on each data set; Bernoulli sampling takes more of them.
EPOCHS = {"wn18rr": (300, 600), "wn18": (200, 500), "fb15k237": (120, 300), "fb15k": (60, 200)}
TIMES = {"bernoulli": 3, "nscaching": 1}
LAST = {"bernoulli": 3000, "nscaching": 1000}
HELPS = 1.003  # times the MRR of the centre: below it is chance

CENTRES: dict[str, dict[str, Settings]] = {
    "bernoulli": {
        "TransE": {"dim": 200, "lr": 1e-3, "batch_size": 4096, "margin": 4.0},
        "DistMult": {"dim": 200, "lr": 1e-3, "batch_size": 4096, "penalty": 0.1},
    },
    "nscaching": {
        "TransE": {"dim": 200, "lr": 1e-3, "batch_size": 4096, "margin": 4.0},
        "DistMult": {"dim": 200, "lr": 1e-3, "batch_size": 4096, "penalty": 0.1},
    },
}
# What is tried on each axis. A learning rate of 0.01 is behind 0.001 or level with it, so that 0.1
# is left out; DistMult in 50 dimensions is far behind, so that 20 are.
PAPER: dict[str, list[list[Settings]]] = {
    "TransE": [
        [{"margin": margin} for margin in (1.0, 2.0, 3.0)],
        [{"lr": lr} for lr in (1e-4, 1e-2)],
        [{"dim": dim} for dim in (20, 50, 100)],
    ],
    "DistMult": [
        [{"penalty": penalty} for penalty in (1e-3, 1e-2)],
        [{"lr": lr} for lr in (1e-4, 1e-2)],
        [{"dim": dim} for dim in (50, 100)],
    ],
}
CACHE: list[list[Settings]] = [
    [{"batch_size": 1024}],
    [{"dim": 100}],
    [{"temperature": temperature} for temperature in (0.5, 2.0)],
    [{"side": "uniform"}],
    [{"draw": "importance"}],
    [{"candidates": "slots"}],
]
WIDE: dict[str, list[list[Settings]]] = {
    "TransE": [
        [{"margin": margin} for margin in (2.0, 3.0, 6.0, 8.0, 10.0)]
        + [{"norm": 2, "margin": margin} for margin in (0.5, 1.0)],
        [{"lr": lr} for lr in (5e-4, 2e-3, 5e-3)],
        [{"penalty": 0.01}],
        *CACHE,
    ],
    "DistMult": [
        [{"penalty": penalty} for penalty in (0.003, 0.01, 0.03, 0.3, 1.0)],
        [{"lr": lr} for lr in (3e-4, 3e-3, 1e-2)],
        *CACHE,
    ],
}
AXES = {"bernoulli": PAPER, "nscaching": WIDE}

# Changes to be tried together, chosen after a look at stage 1; for whole families at first.
SLOTS = {"margin": 7.0, "candidates": "slots"}
MILD = {"margin": 8.0, "temperature": 2.0, "side": "uniform"}
FAIR = {"lr": 5e-4, "side": "uniform"}
CUBIC = {"penalty_norm": "n3"}
CHOSEN: dict[tuple[str, str], list[Settings]] = {
    ("wn18rr", "TransE"): [{"margin": 10.0}, {"margin": 10.0, "temperature": 0.5}],
    ("wn18rr", "TransH"): [{"margin": 10.0}, {"margin": 10.0, "temperature": 0.5}],
    ("wn18rr", "TransD"): [
        {"margin": 10.0},
        {"margin": 6.0},
        {"margin": 4.0},
        {"margin": 4.0, "dim": 100},
        {"margin": 2.0, "dim": 100},
        {"margin": 4.0, "dim": 50},
        {"norm": 2, "margin": 1.0},
        {"margin": 6.0, "dim": 50},
        {"margin": 6.0, "dim": 50, "temperature": 4.0},
    ],
    ("wn18rr", "DistMult"): [
        *({"temperature": 2.0, "batch_size": batch} for batch in (1024, 4096)),
        CUBIC | {"temperature": 8.0, "penalty": 0.003},
    ],
    ("wn18rr", "ComplEx"): [
        {"temperature": 2.0},
        {"temperature": 2.0, "batch_size": 1024},
        {"temperature": 2.0, "penalty": 0.03},
        {"temperature": 2.0, "penalty": 0.2},
        {"temperature": 4.0},
        {"temperature": 2.0, "lr": 5e-4},
        *(CUBIC | {"temperature": 8.0, "penalty": penalty} for penalty in (0.003, 0.01, 0.03)),
    ],
    ("wn18", "TransE"): [SLOTS, {"margin": 7.0}],
    ("wn18", "TransH"): [SLOTS],
    ("wn18", "TransD"): [SLOTS],
    ("wn18", "DistMult"): [
        {"penalty": 0.003, "candidates": "slots"},
        {"penalty": 0.03, "candidates": "slots"},
        {"penalty": 0.01, "candidates": "slots", "batch_size": 1024},
        {"penalty": 0.01, "candidates": "slots", "temperature": 0.5},
        {"penalty": 0.003, "candidates": "slots", "batch_size": 1024, "dim": 100},
    ],
    ("wn18", "ComplEx"): [
        {"penalty": 0.003, "candidates": "slots"},
        {"penalty": 0.01, "temperature": 4.0},
    ],
    ("fb15k237", "TransE"): [MILD, {"margin": 6.0, "temperature": 2.0}],
    ("fb15k237", "TransH"): [MILD, {"margin": 6.0, "temperature": 2.0}],
    ("fb15k237", "TransD"): [MILD, {"margin": 6.0, "side": "uniform"}],
    ("fb15k237", "DistMult"): [{"lr": 3e-4, "penalty": 0.3}, {"lr": 3e-4, "side": "uniform"}],
    ("fb15k237", "ComplEx"): [
        {"lr": 3e-4, "side": "uniform"},
        {"lr": 3e-4},
        {"lr": 3e-4, "penalty": 0.3},
        {"lr": 3e-4, "penalty": 1.0},
        {"lr": 1e-4, "penalty": 0.3},
        {"lr": 3e-4, "penalty": 0.3, "temperature": 2.0},
        CUBIC | {"lr": 3e-4, "penalty": 0.01},
    ],
    ("fb15k", "TransE"): [
        {"margin": 3.0, "side": "uniform", "draw": "importance"},
        {"margin": 3.0, "side": "uniform"},
        {"margin": 2.0, "side": "uniform"},
    ],
    ("fb15k", "TransH"): [{"margin": 3.0, "side": "uniform"}],
    ("fb15k", "TransD"): [{"margin": 3.0, "side": "uniform"}],
    ("fb15k", "DistMult"): [
        {"lr": 1e-3, "side": "uniform", "penalty": 0.03},
        FAIR | {"temperature": 2.0},
        FAIR | {"penalty": 0.3},
    ],
    ("fb15k", "ComplEx"): [
        {"lr": 3e-3, "side": "uniform"},
        {"lr": 2e-3, "side": "uniform", "penalty": 0.01},
        {"lr": 1e-3, "side": "uniform", "penalty": 0.03},
        FAIR | {"temperature": 2.0},
        FAIR | {"penalty": 0.3},
    ],
}


def around(sampler: str, family: str) -> list[Settings]:
    """Return the centre and each change of it."""
    centre = CENTRES[sampler][family]
    return [centre] + [centre | change for axis in AXES[sampler][family] for change in axis]


def together(sampler: str, family: str, found: dict[str, float]) -> list[Settings]:
    """Return the centre with all changes that helped, with the two best, and with the best.

    ``found`` has the MRR of settings, which are written as JSON.
    """
    centre = CENTRES[sampler][family]

    def mrr(change: Settings) -> float:
        return found.get(json.dumps(centre | change, sort_keys=True), 0.0)

    best_of_axes = [max(axis, key=mrr) for axis in AXES[sampler][family]]
    helped = [change for change in best_of_axes if mrr(change) > HELPS * mrr({})]
    helped.sort(key=mrr, reverse=True)
    several = []
    for count in dict.fromkeys([len(helped), min(2, len(helped)), min(1, len(helped))]):
        settings = dict(centre)
        for change in reversed(helped[:count]):
            settings |= change
        several.append(settings)
    return several


def identity(trial: Settings) -> str:
    """Return what tells a trial from others."""
    names = ("data", "model", "settings", "epochs", "seed")
    return json.dumps({name: trial[name] for name in names}, sort_keys=True)


def scores(found: list[Settings], data: str, model: str, epochs: int) -> dict[str, float]:
    """Return the MRR of the settings of a cell among trainings of so many epochs."""
    mine = [r for r in found if (r["data"], r["model"], r["epochs"]) == (data, model, epochs)]
    return {json.dumps(row["settings"], sort_keys=True): row["mrr"] for row in mine if "mrr" in row}


def trials(chosen: argparse.Namespace, found: list[Settings]) -> list[Settings]:
    """Return what a stage trains."""
    todo = []
    for data, (family, models) in itertools.product(chosen.data, FAMILIES.items()):
        first, second = (TIMES[chosen.sampler] * epochs for epochs in EPOCHS[data])
        last = LAST[chosen.sampler]
        for model in models:
            if chosen.models and model not in chosen.models:
                continue
            if chosen.stage == 1 and model == family:
                settings, epochs = around(chosen.sampler, family), first
            elif chosen.stage == 2:
                known = scores(found, data, family, first)
                settings, epochs = together(chosen.sampler, family, known), second
                if chosen.sampler == "nscaching":
                    centre = CENTRES[chosen.sampler][family]
                    settings = [centre | changes for changes in CHOSEN[data, model]]
            elif chosen.stage == 3:
                known = scores(found, data, model, second)
                settings = [json.loads(max(known, key=lambda text: known[text]))] if known else []
                epochs = last
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
    from nscaching import KnowledgeGraph, TrainConfig, UserError, train

    graphs: dict[str, KnowledgeGraph] = {}
    while time.time() < end:
        try:
            trial = todo.get(timeout=2)
        except queue.Empty:
            return
        began, row = time.perf_counter(), dict(trial)
        if trial["data"] not in graphs:
            graphs[trial["data"]] = KnowledgeGraph.load(trial["data"])
        every = max(10, trial["epochs"] // 10)
        settings = {"model": trial["model"], "sampler": sampler, **trial["settings"]}
        settings |= {"epochs": trial["epochs"], "seed": trial["seed"], "validate_every": every}
        try:
            run = train(graphs[trial["data"]], TrainConfig(), **settings)
            row["mrr"], row["epoch"] = run.result("valid")["mrr"], run.best_epoch
            row["seconds"] = round(run.train_seconds, 2)
            if run.graph.labelled:
                row["accuracy"] = round(run.classify("valid")["accuracy"], 4)
            row["curve"] = [
                round(line["mrr"], 4) for line in run.history if line.get("split") == "valid"
            ]
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
