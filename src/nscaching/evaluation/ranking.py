"""Filtered ranking of both sides of every triple, and the metrics of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from nscaching.data.graph import MAPPING_CLASSES, KnowledgeGraph
from nscaching.data.index import Ids, Side
from nscaching.errors import Diverged, UserError, unknown
from nscaching.evaluation.chunks import Chunks
from nscaching.kernels import Kernels, Known, choose_kernels
from nscaching.models import DIVERGED, Model

__all__ = [
    "BUDGET",
    "METRICS",
    "Ranks",
    "Ties",
    "breakdown",
    "chunk_size",
    "evaluate",
    "metrics",
    "rank",
]

Ties = Literal["realistic", "optimistic", "pessimistic"]
Rows = npt.NDArray[np.intp]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")

BUDGET = 512 << 20
"""Bytes that the scores of one chunk of queries may take, temporaries included."""

# Bytes per query and entity at the peak, of forms that go by relation: the parts of each relation
# (4), those together (4), in order (4), and times a weight (4).
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
    if model.broadcasts:  # which holds a few [queries, |E|, D] tensors
        per_score += 3 * 4 * model.entity.shape[1]
    return max(1, budget // (per_score * model.entities))


class Queries:
    """Both queries of some triples on a device, with their known answers: ready to be ranked.

    Preparing them takes longer than ranking on a GPU, so a training run does it once.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        triples: Ids,
        filtered: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        # Together by relation: shifted forms make a table for each relation of a chunk.
        self.order = np.argsort(triples[:, 1], kind="stable")
        head, relation, tail = triples[self.order].T
        self.relation = _ids(relation, device)
        self.most = 0
        """How many fitted at once when they were last ranked; 0: they were not."""
        self.anchor: dict[Side, torch.Tensor] = {}
        self.answer: dict[Side, torch.Tensor] = {}
        self._known: dict[Side, Known] = {}
        for side in Side:
            anchor, answer = side.query(head, tail)
            self.anchor[side], self.answer[side] = _ids(anchor, device), _ids(answer, device)
            if filtered:
                index = graph.filter_index[side]
                start, end = (_ids(run, device) for run in index.runs(anchor, relation))
                answers = torch.from_numpy(index.answers).to(device)
                self._known[side] = Known(start, end, answers)

    def __len__(self) -> int:
        return len(self.relation)

    def known(self, side: Side, some: slice) -> Known | None:
        """Return the known answers of some queries, None if they are not to be filtered."""
        if side not in self._known:
            return None
        known = self._known[side]
        return Known(known.start[some], known.end[some], known.answers)


@torch.no_grad()
def rank(
    model: Model,
    queries: Queries,
    *,
    budget: int = BUDGET,
    progress: Callable[[int, int], None] | None = None,
    kernels: Kernels | None = None,
) -> dict[Side, Ranks]:
    """Rank the true head and the true tail of each triple among all entities.

    Filtered: other known answers of the query, from all splits, do not count. Where memory ends,
    chunks are halved. ``progress`` hears (queries done, queries in all).
    """
    kernels = kernels or choose_kernels("auto", model.entity.device)
    chunks = Chunks(min(chunk_size(model, budget), queries.most or len(queries)))
    counts, done = {}, 0
    for side in Side:

        def count(some: slice, side: Side = side) -> torch.Tensor:
            anchor, answer = queries.anchor[side][some], queries.answer[side][some]
            scores = kernels.score_all(model, side, anchor, queries.relation[some])
            return kernels.count(scores, answer, queries.known(side, some))

        parts = []
        for some, found in chunks.over(len(queries), count):
            parts.append(found)
            done += some.stop - some.start
            if progress is not None:
                progress(done, 2 * len(queries))
        counts[side] = torch.cat(parts, dim=1)  # [3, n]
    queries.most = chunks.size
    ranks = {}
    for side, counted in counts.items():
        above, level, wrong = np.empty((3, len(queries)), dtype=np.int64)
        above[queries.order], level[queries.order], wrong[queries.order] = counted.cpu().numpy()
        if wrong.any():
            raise Diverged(DIVERGED)
        ranks[side] = Ranks(above + 1, above + level + 1)
    return ranks


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
    kernels: Kernels | None = None,
) -> dict[str, Any]:
    """Rank a split and report it overall, by side, by mapping class and by relation."""
    triples = graph.split(split)
    if not len(triples):
        raise UserError(f"the {split} split of {graph.name} is empty: there is nothing to rank")
    queries = Queries(graph, triples, filtered, model.entity.device)
    ranks = rank(model, queries, budget=budget, progress=progress, kernels=kernels)
    found = {"split": split, "filtered": filtered, "ties": ties}
    return found | breakdown(graph, triples, ranks, ties)


def breakdown(
    graph: KnowledgeGraph, triples: Ids, ranks: dict[Side, Ranks], ties: Ties = "realistic"
) -> dict[str, Any]:
    """Report the ranks of triples overall, by side, by mapping class and by relation."""
    resolved = {side.value: ranks[side].resolve(ties) for side in Side}

    def report(rows: Rows) -> dict[str, Any]:
        parts = {side: values[rows] for side, values in resolved.items()}
        overall: dict[str, Any] = {"triples": len(rows)}
        overall |= metrics(np.concatenate(list(parts.values())))
        return overall | {"by_side": {side: metrics(values) for side, values in parts.items()}}

    relation = triples[:, 1]
    classes = np.array(graph.mapping_classes)
    by_class = {c: np.flatnonzero(classes[relation] == c) for c in MAPPING_CLASSES}
    # One sort finds the triples of every relation: there may be thousands of them.
    present, starts = np.unique(np.sort(relation), return_index=True)
    by_relation = np.split(np.argsort(relation, kind="stable"), starts[1:])
    return {
        **report(np.arange(len(triples))),
        "by_class": {c: report(rows) for c, rows in by_class.items() if len(rows)},
        "by_relation": {
            graph.relations[r]: {"class": graph.mapping_classes[r], **report(rows)}
            for r, rows in zip(present, by_relation, strict=True)
        },
    }


def _ids(array: npt.NDArray[Any], device: torch.device | str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).long().to(device)
