"""The defaults against other samplers, PyKEEN's defaults and a search, on many graphs.

python benchmarks/defaults.py [--data world nations …] [--models ComplEx …] [--against …]

- default: ``train(graph, model=…)``; all else is chosen for the graph.
- uniform, bernoulli, self-adversarial: the same with ``sampler=…``, for as many seconds of training
  as the default took; the best of its validations counts.
- pykeen: PyKEEN's pipeline with its defaults for --epochs epochs; the last epoch counts.
- tune: ``tune`` with 40 trials of the paper's grid around the default.

Appends a line for each training to --out and prints a Markdown table of test MRR.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nscaching import KnowledgeGraph, TrainConfig, train, tune
from nscaching.data.datasets import find
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.training.defaults import describe, settings_for
from nscaching.training.trainer import Trainer

Row = dict[str, Any]
OF_PYKEEN = ("nations", "umls", "kinships")
SAMPLERS = ("uniform", "bernoulli", "self-adversarial")


def load(name: str) -> KnowledgeGraph:
    """Load a graph by name; Nations, UMLS and Kinship come with PyKEEN."""
    if name not in OF_PYKEEN:
        return KnowledgeGraph.load(name)
    import pykeen.datasets

    return KnowledgeGraph.load(str(Path(pykeen.datasets.__file__).with_name(name)))


def default(graph: KnowledgeGraph, model: str, seed: int) -> Row:
    run = train(graph, model=model, seed=seed)
    valid, test = run.result("valid"), run.result("test")
    assert valid is not None
    assert test is not None
    epochs = sum("loss" in record for record in run.history)
    row = {"valid": valid["mrr"], "test": test["mrr"], "hits@10": test["hits@10"]}
    row |= {"seconds": run.train_seconds, "best_epoch": run.best_epoch, "epochs": epochs}
    return row | {"settings": describe(run.config)}


def limited(graph: KnowledgeGraph, config: TrainConfig, seconds: float) -> Row:
    """Train for some seconds, or until the configuration ends the training."""
    with torch_settings(config.threads):
        trainer = Trainer(graph, config)
        while not trainer.over and trainer.seconds < seconds:
            trainer.epoch(trainer.trained + 1)
            for _ in trainer.judge():
                pass
        if trainer.trained % config.validate_every:
            figures = trainer.rank("valid", trainer.trained)
            if figures["mrr"] > trainer.best_mrr:
                trainer.best_mrr = figures["mrr"]
                trainer.keep(trainer.trained)
        trainer.best.take()
        trainer.learner.reload()
        test = trainer.rank("test", trainer.best_epoch)
    row = {"valid": trainer.best_mrr, "test": test["mrr"], "hits@10": test["hits@10"]}
    row |= {"seconds": trainer.seconds, "epochs": trainer.trained}
    return row | {"best_epoch": trainer.best_epoch, "settings": describe(config)}


def sampled(graph: KnowledgeGraph, model: str, sampler: str, seed: int, seconds: float) -> Row:
    given = {"model": model, "sampler": sampler, "seed": seed}
    config = settings_for(graph, **given).changed(epochs=100_000, patience=0)
    return limited(graph, config, seconds)


def of_pykeen(graph: KnowledgeGraph, model: str, seed: int, epochs: int) -> Row:
    from pykeen.pipeline import pipeline
    from pykeen_table import check, factory, mrr

    splits = {name: factory(graph, name) for name in ("train", "valid", "test")}
    few = factory(graph, "test")
    few.mapped_triples = few.mapped_triples[:1]  # the pipeline must rank something

    began = time.perf_counter()
    result = pipeline(
        training=splits["train"], validation=splits["valid"], testing=few, model=model,
        random_seed=seed, training_kwargs={"num_epochs": epochs, "use_tqdm": False},
        evaluation_kwargs={"use_tqdm": False}, device="cpu",
    )  # fmt: skip
    taken = time.perf_counter() - began
    check(graph, result.model)
    test = mrr(graph, result.model, graph.test)
    return {"test": test, "seconds": taken, "epochs": epochs, "settings": "PyKEEN's defaults"}


def tuned(graph: KnowledgeGraph, model: str, seed: int, trials: int) -> Row:
    began = time.perf_counter()
    found = tune(graph, trials=trials, model=model, seed=seed)
    seconds = time.perf_counter() - began
    row = default_like(graph, found.best_config)
    return row | {"seconds": seconds, "settings": str(found.best.settings)}


def default_like(graph: KnowledgeGraph, config: TrainConfig) -> Row:
    run = train(graph, config)
    valid, test = run.result("valid"), run.result("test")
    assert valid is not None
    assert test is not None
    return {"valid": valid["mrr"], "test": test["mrr"], "hits@10": test["hits@10"]}


def measure(data: str, model: str, asked: argparse.Namespace, show: Callable[[Row], None]) -> Row:
    graph = load(data)
    about = {"data": data, "model": model, "seed": asked.seed, "device": asked.device}
    first = default(graph, model, asked.seed)
    show(about | {"way": "default"} | first)
    found = {"default": first}
    seconds = first["seconds"]
    for way in asked.against:
        if way in SAMPLERS:
            row = sampled(graph, model, way, asked.seed, seconds)
        elif way == "pykeen":
            row = of_pykeen(graph, model, asked.seed, asked.epochs)
        else:
            row = tuned(graph, model, asked.seed, asked.trials)
        found[way] = row
        show(about | {"way": way} | row)
    return found


def cell(row: Row) -> str:
    return f"{row['test']:.3f} ({row['seconds']:.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", nargs="+", default=["world", *OF_PYKEEN])
    parser.add_argument("--models", nargs="+", default=["ComplEx", "DistMult", "TransE", "RotatE"])
    ways = [*SAMPLERS, "pykeen", "tune"]
    parser.add_argument("--against", nargs="*", default=ways, choices=ways)
    parser.add_argument("--epochs", type=int, default=200, help="of PyKEEN")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/defaults.jsonl"))
    asked = parser.parse_args()
    for name in asked.data:
        if name not in OF_PYKEEN and name != "world" and find(name) is None:
            parser.error(f"unknown data set {name}")
    asked.device = "cuda" if torch.cuda.is_available() else "cpu"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asked.out.parent.mkdir(parents=True, exist_ok=True)

    def show(row: Row) -> None:
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(json.dumps(row) + "\n")

    columns = ["default", *asked.against]
    print("| | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for data in asked.data:
        for model in asked.models:
            found = measure(data, model, asked, show)
            cells = " | ".join(cell(found[way]) for way in columns)
            print(f"| {data}, {model} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
