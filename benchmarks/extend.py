"""New entities by ``extend`` against a full training: MRR of their test triples.

    python benchmarks/extend.py WHERE --seed 1

A share of the entities is taken out of the graph with all their triples. One run is trained
without them and extended by their training triples; another one is trained on everything. Both
rank the test triples that name one of the entities, among all entities, filtered. What is not
said is the default of the package for the graph.
"""

import argparse
import time

import numpy as np

from nscaching import KnowledgeGraph, Run, train
from nscaching.data.graph import SPLITS
from nscaching.data.index import Ids
from nscaching.evaluation.ranking import Queries, rank
from nscaching.evaluation.ranks import metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=["ComplEx", "DistMult", "TransE", "RotatE"])
    asked = parser.parse_args()
    graph = KnowledgeGraph.load(asked.where)
    random = np.random.default_rng(asked.seed)
    count = round(asked.share * len(graph.entities))
    new = {graph.entities[i] for i in random.permutation(len(graph.entities))[:count]}
    old = {s: [f for f in graph.triples(s) if not new & {f[0], f[2]}] for s in SPLITS}
    named = {relation for _, relation, _ in old["train"]}  # extend needs known relations
    facts, asked_for = (
        [f for f in graph.triples(s) if new & {f[0], f[2]} and f[1] in named]
        for s in ("train", "test")
    )
    smaller = KnowledgeGraph.from_triples(old["train"], valid=old["valid"], test=old["test"])
    sizes = f"{count} entities with {len(facts)} training and {len(asked_for)} test triples"
    print(f"{graph.name}: {len(graph.entities)} entities, of which are new: {sizes}")
    for model in asked.models:
        settings = {"model": model, "epochs": asked.epochs, "dim": asked.dim, "seed": asked.seed}
        whole, seconds = timed(lambda s=settings: train(graph, **s))
        part = train(smaller, **settings)
        extended, fitted = timed(lambda run=part: run.extend(facts, seed=asked.seed))
        report = extended.record["extended"]
        print(f"{model}: full training {seconds:.1f} s, extended in {fitted:.1f} s", flush=True)
        for name, run in (("full training", whole), ("extended", extended)):
            print(f"  {name:13}  MRR {figures(run, graph, asked_for, new)}", flush=True)
        print(f"  its own figure, of {report['held_out']} held-out facts: {report['mrr']:.3f}")
        others = [figures(run, graph, old["test"], set()) for run in (whole, part, extended)]
        print(f"  other test triples: full, before, after: {', '.join(others)}", flush=True)


def timed(work: object) -> tuple[Run, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin  # type: ignore[operator]


def figures(
    run: Run, graph: KnowledgeGraph, triples: list[tuple[str, str, str]], new: set[str]
) -> str:
    """Return the filtered MRR of test triples; known are those of the whole graph.

    With new entities also the MRR of the queries for a new entity and for a known one.
    """
    names, relations = set(run.graph.entities), set(run.graph.relations)

    def ids(some: list[tuple[str, str, str]]) -> Ids:
        return run.graph.ids([f for f in some if {f[0], f[2]} <= names and f[1] in relations])

    every = ids([f for split in SPLITS for f in graph.triples(split)])
    lists = {"entities": run.graph.entities, "relations": run.graph.relations}
    known = KnowledgeGraph.from_triples(every, split_seed=None, **lists)
    asked = ids(triples)
    ranks = [r.resolve("realistic") for r in rank(run.model, Queries(known, asked)).values()]
    both = f"{metrics(np.concatenate(ranks))['mrr']:.3f}"
    if not new:
        return both
    is_new = np.isin(run.graph.entities, list(new))[asked[:, [0, 2]]]  # heads, tails [n, 2]
    found = [
        metrics(np.concatenate([r[is_new[:, i] == which] for i, r in enumerate(ranks)]))["mrr"]
        for which in (True, False)
    ]
    return both + " (a new entity asked for {:.3f}, a known one {:.3f})".format(*found)


if __name__ == "__main__":
    main()
