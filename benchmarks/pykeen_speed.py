"""Seconds of an epoch and of a ranking: nscaching beside PyKEEN, in one run on one machine.

python benchmarks/pykeen_speed.py

Plain sampling means one Bernoulli negative per triple, for both. PyKEEN's evaluator ranks some test
triples; its seconds for all of them follow from their share.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen_table import factory, new_loop, new_model

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.evaluation.ranking import Queries, rank
from nscaching.training.trainer import Trainer


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median seconds of a few calls, after one that may compile."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def ours(graph: KnowledgeGraph, name: str, sampler: str, asked: argparse.Namespace) -> list[float]:
    """Return seconds of an epoch and of a ranking of all test triples in nscaching."""
    trainer = Trainer(graph, TrainConfig(
        model=name, sampler=sampler, dim=asked.dim, batch_size=asked.batch, device="cpu",
    ))  # fmt: skip
    epochs = iter(range(1, 100))
    epoch = seconds(lambda: trainer.epoch(next(epochs)), asked.times)
    queries = Queries(graph, graph.test)
    return [epoch, seconds(lambda: rank(trainer.model, queries, kernels=trainer.kernels), 1)]


def theirs(
    graph: KnowledgeGraph, name: str, sampler: str, asked: argparse.Namespace
) -> list[float]:
    """Return the same of PyKEEN."""
    training = factory(graph, "train")
    model = new_model(name, training, asked.dim, margin=4.0)
    loop = new_loop(model, training, sampler, lr=0.001, n1=50)
    options = {"batch_size": asked.batch, "use_tqdm": False}
    loop.train(training, num_epochs=1, **options)
    done = [1]

    def epoch() -> None:
        done[0] += 1
        loop.train(training, num_epochs=done[0], continue_training=True, **options)

    some = torch.from_numpy(graph.test[: asked.ranked]).long()
    known = [torch.from_numpy(graph.split(split)).long() for split in ("train", "valid", "test")]
    evaluator = RankBasedEvaluator(filtered=True)

    def ranking() -> None:
        evaluator.evaluate(
            model, some, batch_size=32, use_tqdm=False, additional_filter_triples=known
        )

    taken = seconds(epoch, asked.times)
    return [taken, seconds(ranking, 1) * len(graph.test) / len(some)]


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--models", nargs="+", default=["TransE", "ComplEx"])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--ranked", type=int, default=500)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    graph = KnowledgeGraph.load(asked.data)
    print("| | plain epoch | epoch with the cache | ranking |")
    print("|---|---|---|---|")
    for name in asked.models:
        for who, measure in (("nscaching", ours), ("PyKEEN", theirs)):
            plain, ranking = measure(graph, name, "bernoulli", asked)
            cached, _ = measure(graph, name, "nscaching", asked)
            print(
                f"| {name}, {who} | {plain:.2f} s | {cached:.2f} s | {ranking:.1f} s |", flush=True
            )


if __name__ == "__main__":
    main()
