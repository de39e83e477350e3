"""Filtered ranking of both sides of every triple, and the metrics of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from nscaching.errors import UserError, unknown
from nscaching.graph import MAPPING_CLASSES, Ids, KnowledgeGraph, Side
from nscaching.models import Model, finite

__all__ = ["BUDGET", "METRICS", "Ranks", "Ties", "chunk_size", "evaluate", "metrics", "rank"]

Ties = Literal["realistic", "optimistic", "pessimistic"]
Mask = npt.NDArray[np.bool_]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")

BUDGET = 512 << 20
"""Bytes that the scores of one chunk of queries may take, temporaries included."""

# Bytes per query and entity at the peak: the table of a shifted form (4), the distances of one
# relation (4), their negative (4) and the copy that is put into the table (4).
SCORE_BYTES = 16


@dataclass(frozen=True)
class Ranks:
    """Ranks of the true answers [n], the first place being 1, with ties for and against them."""

    optimistic: npt.NDArray[np.int64]
    pessimistic: npt.NDArray[np.int64]

    def resolve(self, ties: Ties) -> npt.NDArray[np.float64]:
        """Return one rank each; realistic is the mean of the two."""
        if ties not in get_args(Ties):
            raise unknown("way to rank ties", ties, get_args(Ties))
        if ties == "realistic":
            return (self.optimistic + self.pessimistic) / 2
        best = ties == "optimistic"
        return (self.optimistic if best else self.pessimistic).astype(np.float64)


def chunk_size(model: Model, budget: int = BUDGET) -> int:
    """Return how many queries may be scored against all entities at once within the budget."""
    per_score = SCORE_BYTES
    if model.form is None:  # plain broadcasting holds a few [queries, |E|, D] tensors
        per_score += 3 * 4 * model.entity.shape[1]
    return max(1, budget // (per_score * model.entities))


@torch.no_grad()
def rank(
    model: Model,
    graph: KnowledgeGraph,
    triples: Ids,
    *,
    filtered: bool = True,
    budget: int = BUDGET,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Side, Ranks]:
    """Rank the true head and the true tail of each triple [n, 3] among all entities.

    Filtered: other known answers of the query, from all splits, do not count. ``progress`` hears
    (queries done, queries in all).
    """
    device = model.entity.device
    chunk = chunk_size(model, budget)
    # Together by relation: shifted forms make a table for each relation of a chunk.
    by_relation = np.argsort(triples[:, 1], kind="stable")
    ranks = {side: np.empty((2, len(triples)), dtype=np.int64) for side in Side}
    done = 0
    for side in Side:
        for start in range(0, len(triples), chunk):
            rows = by_relation[start : start + chunk]
            head, relation, tail = triples[rows].T
            anchor, answer = side.query(head, tail)
            known = graph.filter_index[side].known(anchor, relation) if filtered else None
            scores = finite(model.score_all(side, _ids(anchor, device), _ids(relation, device)))
            target = scores.gather(1, _ids(answer, device).unsqueeze(1))  # [chunk, 1]
            if known is not None:
                scores[_ids(known[0], device), _ids(known[1], device)] = float("-inf")
            scores.scatter_(1, _ids(answer, device).unsqueeze(1), float("-inf"))
            better = (scores > target).sum(1)
            equal = (scores == target).sum(1)
            ranks[side][0, rows] = (better + 1).cpu().numpy()
            ranks[side][1, rows] = (better + equal + 1).cpu().numpy()
            done += len(rows)
            if progress is not None:
                progress(done, 2 * len(triples))
    return {side: Ranks(*both) for side, both in ranks.items()}


def metrics(ranks: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return MRR, MR and Hit@k of some ranks; Hit@k counts rank ≤ k."""
    if not len(ranks):
        raise UserError("there are no triples to rank")
    found = {"mrr": float(np.mean(1 / ranks)), "mr": float(np.mean(ranks))}
    return found | {f"hits@{k}": float(np.mean(ranks <= k)) for k in (1, 3, 10)}


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    *,
    filtered: bool = True,
    ties: Ties = "realistic",
    budget: int = BUDGET,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Rank a split and report it overall, by side, by mapping class and by relation."""
    triples = graph.split(split)
    if not len(triples):
        raise UserError(f"the {split} split of {graph.name} is empty: there is nothing to rank")
    both = rank(model, graph, triples, filtered=filtered, budget=budget, progress=progress)
    ranks = {side.value: both[side].resolve(ties) for side in Side}

    def report(chosen: Mask) -> dict[str, Any]:
        parts = {side: values[chosen] for side, values in ranks.items()}
        overall: dict[str, Any] = {"triples": int(chosen.sum())}
        overall |= metrics(np.concatenate(list(parts.values())))
        return overall | {"by_side": {side: metrics(values) for side, values in parts.items()}}

    relation = triples[:, 1]
    classes = np.array(graph.mapping_classes)[relation]
    return {
        "split": split,
        "filtered": filtered,
        "ties": ties,
        **report(np.ones(len(triples), dtype=bool)),
        "by_class": {c: report(classes == c) for c in MAPPING_CLASSES if (classes == c).any()},
        "by_relation": {
            graph.relations[r]: {"class": graph.mapping_classes[r], **report(relation == r)}
            for r in np.unique(relation)
        },
    }


def _ids(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).long().to(device)
