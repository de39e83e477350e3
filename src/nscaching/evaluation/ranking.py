"""Filtered ranking of both sides of every triple."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.graph import MAPPING_CLASSES, SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.errors import DIVERGED, Diverged, UserError
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranks import Floats, Ranks, Ties, metrics
from nscaching.kernels import Kernels, Known, choose_kernels
from nscaching.kernels.standing import Asked, scores_within
from nscaching.models import Model, finite

Device = torch.device | str
Progress = Callable[[int, int], None]  # receives (queries done, queries in all)
Rows = npt.NDArray[np.intp]

BUDGET = 512 << 20  # bytes for the scores of one chunk of queries, temporaries included
PIECE = 65536  # triples or entities whose rows are gathered at once


def chunk_size(model: Model, budget: int = BUDGET) -> int:
    """Return how many queries can be scored against all entities at once within the budget."""
    return max(1, scores_within(model, budget) // model.entities)


def ask(first: Ids, second: Ids, answer: Ids, index: AnswerIndex | None, device: Device) -> Asked:
    """Return queries on a device with the true answers and, by an index, all known ones."""
    known = None
    if index is not None:
        start, end = (id_tensor(run, device) for run in index.runs(first, second))
        known = Known(start, end, torch.from_numpy(index.answers).to(device))
    anchor, relation, true = (id_tensor(ids, device) for ids in (first, second, answer))
    return Asked(anchor, relation, true, known)


class Queries:
    """Both queries of some triples on a device, with their known answers.

    On a GPU this takes longer than the ranking itself, so a training run prepares them once.
    """

    def __init__(
        self, graph: KnowledgeGraph, triples: Ids, filtered: bool = True, device: Device = "cpu"
    ) -> None:
        # Sorted by relation: shifted forms make a table for each relation of a chunk.
        self.order = np.argsort(triples[:, 1], kind="stable")
        head, relation, tail = triples[self.order].T
        self.most = len(triples)  # queries that fitted into memory at once in the last ranking
        self.sides: dict[Side, Asked] = {}
        for side in Side:
            anchor, answer = side.query(head, tail)
            index = graph.filter_index[side] if filtered else None
            self.sides[side] = ask(anchor, relation, answer, index, device)
        # One tensor of relations serves both sides.
        shared = self.sides[Side.HEAD].relation
        self.sides[Side.TAIL] = replace(self.sides[Side.TAIL], relation=shared)


def id_tensor(ids: npt.NDArray[Any], device: Device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids)).long().to(device)


@torch.no_grad()
def rank(
    model: Model,
    queries: Queries,
    *,
    budget: int = BUDGET,
    progress: Progress | None = None,
    kernels: Kernels | None = None,
) -> dict[Side, Ranks]:
    """Rank the true head and the true tail of each triple among all entities."""
    kernels = kernels or choose_kernels("auto", model.entity.device)
    tile = kernels.tile(model, budget)
    chunks = Chunks(min(tile.queries, queries.most))

    def count(side: Side, some: slice) -> Tensor:
        return kernels.stand(model, side, queries.sides[side].part(some), tile.entities)

    ranks = rank_sides(count, queries, chunks, progress)
    queries.most = chunks.size
    return ranks


def rank_sides(
    count: Callable[[Side, slice], Tensor],
    queries: Queries,
    chunks: Chunks,
    progress: Progress | None,
) -> dict[Side, Ranks]:
    """Rank both sides by what ``count`` counts for some queries; in the order of the triples."""
    ranks: dict[Side, Ranks] = {}
    place = np.argsort(queries.order)

    def report(done: int, of: int) -> None:
        if progress is not None:
            progress(len(ranks) * of + done, 2 * of)

    for side in queries.sides:
        found = _rank(partial(count, side), len(place), chunks, report)
        ranks[side] = Ranks(found.optimistic[place], found.pessimistic[place])
    return ranks


@torch.no_grad()
def rank_among(
    score: Callable[[Tensor, Tensor], Tensor],
    asked: Asked,
    chunks: Chunks,
    progress: Progress | None = None,
    kernels: Kernels | None = None,
) -> Ranks:
    """Rank the true answer of each query among its candidates.

    ``score`` returns the scores [some, candidates] of some queries, given their two ids. Known
    answers other than the true one do not count.
    """
    by = kernels or Kernels()

    def count(some: slice) -> Tensor:
        here = asked.part(some)
        return by.count(score(here.anchor, here.relation), here.answer, here.known)

    return _rank(count, len(asked.answer), chunks, progress)


def _rank(
    count: Callable[[slice], Tensor], total: int, chunks: Chunks, progress: Progress | None
) -> Ranks:
    """Rank by what ``count`` counts for some queries [3, n]: above, level and non-finite."""
    parts = []
    for some, found in chunks.over(total, count):
        parts.append(found)
        if progress is not None:
            progress(some.stop, total)
    above, level, non_finite = torch.cat(parts, dim=1).cpu().numpy()  # [3, n]
    if non_finite.any():
        raise Diverged(DIVERGED)
    return Ranks(above + 1, above + level + 1)


@dataclass(frozen=True)
class Options:
    """How an evaluation ranks."""

    filtered: bool = True
    """Other known answers, of any split, do not count."""
    ties: Ties = "realistic"
    """How equal scores rank."""
    budget: int = BUDGET
    """Bytes for the scores of one chunk of queries."""
    progress: Progress | None = None

    def said(self) -> dict[str, Any]:
        """Return what a report says of the options."""
        return {"filtered": self.filtered, "ties": self.ties}


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Rank a split and report the metrics overall, by side, by mapping class and by relation.

    The options are those of ``Options``.
    """
    how, triples = Options(**options), non_empty(graph, split)
    queries = Queries(graph, triples, how.filtered, model.entity.device)
    ranks = rank(model, queries, budget=how.budget, progress=how.progress)
    return {"split": split, **how.said()} | breakdown(graph, triples, ranks, how.ties)


def non_empty(graph: KnowledgeGraph, split: str, what: str = "rank") -> Ids:
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
def row_by_row(
    model: Model, ids: npt.NDArray[Any], work: Callable[[Tensor], Tensor], what: str
) -> Floats:
    """Return the finite numbers that ``work`` returns for some rows of ids, of all rows [n]."""
    asked, chunks = id_tensor(ids, model.entity.device), Chunks(max(1, min(PIECE, len(ids))), what)
    done = chunks.over(len(ids), lambda some: work(asked[some]))
    parts = [part.double().cpu() for _, part in done]
    return finite(torch.cat([torch.empty(0, dtype=torch.float64), *parts])).numpy()


def breakdown(
    graph: KnowledgeGraph, triples: Ids, ranks: dict[Side, Ranks], ties: Ties = "realistic"
) -> dict[str, Any]:
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
