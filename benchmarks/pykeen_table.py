"""PyKEEN's basic and Bernoulli samplers against the cache, all in PyKEEN, with equal settings.

python benchmarks/pykeen_table.py --epochs 30

Trains in PyKEEN's pipeline loop with its sLCWA training loop and prints a table in Markdown:
filtered test MRR and seconds per epoch. The ranking is nscaching's (two orders of magnitude faster
than PyKEEN's on a CPU); on some test triples PyKEEN's own evaluator is asked too, and both must
agree.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import MarginRankingLoss, SoftplusLoss
from pykeen.models import ComplEx, ERModel, TransE
from pykeen.sampling import negative_sampler_resolver
from pykeen.triples import TriplesFactory

from nscaching import KnowledgeGraph
from nscaching.data.index import Ids, Side
from nscaching.evaluation.ranking import Queries, rank
from nscaching.evaluation.ranks import metrics
from nscaching.kernels import choose_kernels
from nscaching.models import build
from nscaching.pykeen import NSCachingTrainingLoop

SAMPLERS = ("basic", "bernoulli", "nscaching")
CHECKED = 200  # test triples that PyKEEN's evaluator ranks too


def factory(graph: KnowledgeGraph, split: str) -> TriplesFactory:
    """Return a split as PyKEEN has it."""
    return TriplesFactory(
        torch.from_numpy(graph.split(split)).long(),
        entity_to_id={name: i for i, name in enumerate(graph.entities)},
        relation_to_id={name: i for i, name in enumerate(graph.relations)},
    )


def new_model(name: str, training: TriplesFactory, dim: int, margin: float) -> ERModel:
    """Make PyKEEN's model with the loss that it has by default."""
    if name == "TransE":
        loss = MarginRankingLoss(margin=margin)
        return TransE(triples_factory=training, embedding_dim=dim, loss=loss, random_seed=0)
    return ComplEx(triples_factory=training, embedding_dim=dim, loss=SoftplusLoss(), random_seed=0)


def new_loop(
    model: ERModel, training: TriplesFactory, sampler: str, lr: float, n1: int
) -> NSCachingTrainingLoop:
    """Return PyKEEN's sLCWA loop with Adam and a sampler."""
    return NSCachingTrainingLoop(
        model=model,
        triples_factory=training,
        optimizer=torch.optim.Adam(model.parameters(), lr=lr),
        negative_sampler=negative_sampler_resolver.lookup(sampler),
        negative_sampler_kwargs={"n1": n1, "n2": n1} if sampler == "nscaching" else {},
    )


def mrr(graph: KnowledgeGraph, model: ERModel, triples: Ids) -> float:
    """Rank by nscaching, with the parameters of PyKEEN's model."""
    name = type(model).__name__
    norm = 2 if name == "RotatE" else 1
    twin = build(name, graph, model.entity_representations[0].shape[0], norm)
    parts = {
        "entity": model.entity_representations[0],
        "relation": model.relation_representations[0],
    }
    with torch.no_grad():
        for table, representation in parts.items():
            rows = representation(None).detach()
            if name == "RotatE" and table == "relation":
                rows = rows.angle()
            if rows.is_complex():
                rows = torch.cat([rows.real, rows.imag], dim=1)
            getattr(twin, table).copy_(rows)
    ranks = rank(twin, Queries(graph, triples), kernels=choose_kernels("auto", torch.device("cpu")))
    both = torch.cat([torch.from_numpy(ranks[side].resolve("realistic")) for side in Side])
    return metrics(both.numpy())["mrr"]


def check(graph: KnowledgeGraph, model: ERModel) -> None:
    """Compare nscaching's ranking with that of PyKEEN's evaluator."""
    some = graph.test[:CHECKED]
    known = [torch.from_numpy(graph.split(split)).long() for split in ("train", "valid", "test")]
    result = RankBasedEvaluator(filtered=True).evaluate(
        model, torch.from_numpy(some).long(), batch_size=32, use_tqdm=False,
        additional_filter_triples=known,
    )  # fmt: skip
    theirs, ours = (
        result.get_metric("both.realistic.inverse_harmonic_mean_rank"),
        mrr(graph, model, some),
    )
    if abs(theirs - ours) > 1e-3 * theirs:
        raise SystemExit(f"PyKEEN's evaluator says {theirs}, nscaching's ranking {ours}")


def measure(graph: KnowledgeGraph, name: str, sampler: str, asked: argparse.Namespace) -> str:
    """Train once; return MRR and seconds per epoch as a cell."""
    torch.manual_seed(0)
    training = factory(graph, "train")
    model = new_model(name, training, asked.dim, asked.margin)
    loop = new_loop(model, training, sampler, asked.lr, asked.n1)
    options = {"batch_size": asked.batch, "use_tqdm": False}
    loop.train(training, num_epochs=1, **options)  # compiles, and is trained anew below
    began = time.perf_counter()
    loop.train(training, num_epochs=1 + asked.epochs, continue_training=True, **options)
    seconds = (time.perf_counter() - began) / asked.epochs
    check(graph, model)
    return f"{mrr(graph, model, graph.test):.4f} | {seconds:.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--margin", type=float, default=4.0)
    parser.add_argument("--n1", type=int, default=50)
    parser.add_argument("--data", nargs="+", default=["wn18rr", "fb15k237"])
    parser.add_argument("--models", nargs="+", default=["TransE", "ComplEx"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print("| | " + " | ".join(f"{s}: MRR | s/epoch" for s in SAMPLERS) + " |")
    print("|---" * (1 + 2 * len(SAMPLERS)) + "|")
    for data in asked.data:
        graph = KnowledgeGraph.load(data)
        for name in asked.models:
            cells = [measure(graph, name, sampler, asked) for sampler in SAMPLERS]
            print(f"| {name}, {data} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
