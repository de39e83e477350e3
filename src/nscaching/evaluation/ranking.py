"""Filtered ranking of both sides of every triple, and the metrics of the ranks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.graph import MAPPING_CLASSES, SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.errors import Diverged, UserError, unknown
from nscaching.evaluation.chunks import Chunks
from nscaching.kernels import Kernels, Known, choose_kernels
from nscaching.models import DIVERGED, Model, finite

Progress = Callable[[int, int], None]

Ties = Literal["realistic", "optimistic", "pessimistic"]
Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")

BUDGET = 512 << 20
"""Bytes for the scores of one chunk of queries, temporaries included."""

# Peak bytes per query and entity, for forms that score relation by relation: the scores of each
# relation (4), joined (4), in the order of the queries (4), and times a weight (4).
SCORE_BYTES = 16


@dataclass(frozen=True)
class Ranks:
    """Ranks of the true answers [n] from 1, with equal scores behind and before them."""

    optimistic: npt.NDArray[np.int64]
    pessimistic: npt.NDArray[np.int64]

    def resolve(self, ties: Ties) -> Floats:
        """Return one rank of each answer; realistic is the mean of the two."""
        if ties not in get_args(Ties):
            raise unknown("way to rank ties", ties, get_args(Ties))
        if ties == "realistic":
            return (self.optimistic + self.pessimistic) / 2
        found = self.optimistic if ties == "optimistic" else self.pessimistic
        return found.astype(np.float64)


def chunk_size(model: Model, budget: int = BUDGET) -> int:
    """Return how many queries can be scored against all entities at once within the budget."""
    per_score = SCORE_BYTES
    if model.broadcasts:  # which takes a few [queries, |E|, D] tensors
        per_score += 3 * 4 * model.entity.shape[1]
    return max(1, budget // (per_score * model.entities))


class Queries:
    """Both queries of some triples on a device, with their known answers.

    On a GPU this takes longer than the ranking itself, so a training run prepares them once.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        triples: Ids,
        filtered: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        # Sorted by relation: shifted forms make a table for each relation of a chunk.
        self.order = np.argsort(triples[:, 1], kind="stable")
        head, relation, tail = triples[self.order].T
        self.relation = id_tensor(relation, device)
        self.most = 0
        """Queries that fitted into memory at once in the last ranking; 0 before the first."""
        self.anchor: dict[Side, Tensor] = {}
        self.answer: dict[Side, Tensor] = {}
        self.known: dict[Side, Known] = {}
        """Empty if known answers count too."""
        for side in Side:
            anchor, answer = side.query(head, tail)
            self.anchor[side] = id_tensor(anchor, device)
            self.answer[side] = id_tensor(answer, device)
            if filtered:
                self.known[side] = known_from(graph.filter_index[side], anchor, relation, device)

    def __len__(self) -> int:
        return len(self.relation)


def id_tensor(ids: npt.NDArray[Any], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids)).long().to(device)


def known_from(index: AnswerIndex, first: Ids, second: Ids, device: torch.device | str) -> Known:
    """Return the known answers of queries that consist of two ids each."""
    start, end = (id_tensor(run, device) for run in index.runs(first, second))
    return Known(start, end, torch.from_numpy(index.answers).to(device))


@torch.no_grad()
def rank(
    model: Model,
    queries: Queries,
    *,
    budget: int = BUDGET,
    progress: Progress | None = None,
    kernels: Kernels | None = None,
) -> dict[Side, Ranks]:
    """Rank the true head and the true tail of each triple among all entities.

    ``progress`` receives (queries done, queries in all).
    """
    kernels = kernels or choose_kernels("auto", model.entity.device)
    chunks = Chunks(min(chunk_size(model, budget), queries.most or len(queries)))
    ranks: dict[Side, Ranks] = {}
    place = np.argsort(queries.order)
    for side in Side:

        def score(some: slice, side: Side = side) -> Tensor:
            anchor, relation = queries.anchor[side][some], queries.relation[some]
            return kernels.score_all(model, side, anchor, relation)

        def report(done: int, of: int) -> None:
            if progress is not None:
                progress(len(ranks) * of + done, 2 * of)

        known = queries.known.get(side)
        found = rank_among(score, queries.answer[side], known, chunks, report, kernels)
        ranks[side] = Ranks(found.optimistic[place], found.pessimistic[place])
    queries.most = chunks.size
    return ranks


@torch.no_grad()
def rank_among(
    score: Callable[[slice], Tensor],
    answer: Tensor,
    known: Known | None,
    chunks: Chunks,
    progress: Progress | None = None,
    kernels: Kernels | None = None,
) -> Ranks:
    """Rank the answer [n] of each query among its candidates.

    ``score`` returns the scores [some, candidates] of some queries. Filtered: ``known`` answers
    other than the true one do not count. ``progress`` receives (queries done, queries in all).
    """
    kernels = kernels or Kernels()

    def count(some: slice) -> Tensor:
        others = known and Known(known.start[some], known.end[some], known.answers)
        return kernels.count(score(some), answer[some], others)

    parts = []
    for some, found in chunks.over(len(answer), count):
        parts.append(found)
        if progress is not None:
            progress(some.stop, len(answer))
    above, level, non_finite = torch.cat(parts, dim=1).cpu().numpy()  # [3, n]
    if non_finite.any():
        raise Diverged(DIVERGED)
    return Ranks(above + 1, above + level + 1)


def metrics(ranks: Floats) -> dict[str, float]:
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
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Rank a split and report the metrics overall, by side, by mapping class and by relation."""
    triples = non_empty(graph, split)
    queries = Queries(graph, triples, filtered, model.entity.device)
    ranks = rank(model, queries, budget=budget, progress=progress)
    asked = {"split": split, "filtered": filtered, "ties": ties}
    return asked | breakdown(graph, triples, ranks, ties)


def non_empty(graph: KnowledgeGraph, split: str, what: str = "rank") -> Ids:
    """Return the triples of a split, or raise a UserError that there is nothing to rank."""
    triples = graph.split(split)
    if not len(triples):
        raise UserError(f"the {split} split of {graph.name} is empty: there is nothing to {what}")
    return triples


def triples_of(graph: KnowledgeGraph, relation: int, splits: tuple[str, ...] = SPLITS) -> Ids:
    triples = np.concatenate([graph.split(split) for split in splits])
    found: Ids = triples[triples[:, 1] == relation]
    return found


def rows_by(ids: Ids) -> Iterator[tuple[int, Rows]]:
    """Yield each id of ids [n] and the rows that hold the id, both ascending.

    One sort finds all rows: there may be thousands of relations.
    """
    present, counts = np.unique(ids, return_counts=True)
    rows = np.split(np.argsort(ids, kind="stable"), np.cumsum(counts)[:-1])
    return zip(present.tolist(), rows, strict=True)


@torch.no_grad()
def row_by_row(total: int, work: Callable[[slice], Tensor], what: str, most: int) -> Floats:
    """Return the finite numbers that work(some) returns for some rows, of all rows [total]."""
    chunks = Chunks(max(1, min(most, total)), what)
    parts = [part.double().cpu() for _, part in chunks.over(total, work)]
    return finite(torch.cat([torch.empty(0, dtype=torch.float64), *parts])).numpy()


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

    classes = np.array(graph.mapping_classes)[triples[:, 1]]
    by_class = {c: np.flatnonzero(classes == c) for c in MAPPING_CLASSES}
    return {
        **report(np.arange(len(triples))),
        "by_class": {c: report(rows) for c, rows in by_class.items() if len(rows)},
        "by_relation": {
            graph.relations[r]: {"class": graph.mapping_classes[r], **report(rows)}
            for r, rows in rows_by(triples[:, 1])
        },
    }
