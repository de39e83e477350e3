"""The ranking as ``predict`` shows answers: entities of the relation's type before all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Longs, Side
from nscaching.data.types import RelationType
from nscaching.evaluation import ranking
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import id_tensor, rank_among, rows_by
from nscaching.evaluation.ranks import Ranks, metrics
from nscaching.kernels import Kernels, Known, choose_kernels
from nscaching.kernels.standing import Asked
from nscaching.models import Model

SCORE_BYTES = 16  # per query and candidate at the peak: the scores, a copy, and two masks


def evaluate_typed(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Rank a split among typed candidates; report the metrics, overall and by side.

    Candidates are the entities that the relation has on that side in training, without the entity
    of the query where the relation has no loops there. All others rank behind them, by score;
    ``outside`` counts the answers that do. The options are those of ``ranking.Options``.
    """
    how = ranking.Options(**options)
    triples = ranking.non_empty(graph, split)
    ranks = {side: np.empty(len(triples)) for side in Side}
    outside, done = 0, 0
    rows_of = {relation: graph.train[rows] for relation, rows in rows_by(graph.train[:, 1])}
    kernels = choose_kernels("auto", model.entity.device)
    for relation, rows in rows_by(triples[:, 1]):
        kind = RelationType(rows_of.get(relation, graph.train[:0]))
        for side in Side:
            asked = TypedQueries(graph, kind, side, triples[rows], how.filtered)
            found = asked.rank(model, kernels, how.budget)
            ranks[side][rows] = found.resolve(how.ties)
            outside += int((~asked.inside).sum())
            done += len(rows)
            if how.progress is not None:
                how.progress(done, 2 * len(triples))
    by_side = {side.value: metrics(found) for side, found in ranks.items()}
    overall = metrics(np.concatenate(list(ranks.values())))
    return {**overall, "outside": outside, "answers": 2 * len(triples), "by_side": by_side}


@dataclass
class TypedQueries:
    """The queries of one relation and side, with what does not count as a rival of the answers."""

    graph: KnowledgeGraph
    kind: RelationType
    side: Side
    triples: Ids  # [n, 3] of one relation
    filtered: bool

    def __post_init__(self) -> None:
        head, self.relation, tail = self.triples.T
        self.anchor, self.answer = self.side.query(head, tail)
        self.typed = np.zeros(len(self.graph.entities), dtype=bool)
        if len(self.kind.triples) and self.kind.is_closed(self.side):
            self.typed[self.kind.entities(self.side)] = True
        else:  # training does not say which entities there are
            self.typed[:] = True
        self.inside = self.typed[self.answer]

    def pairs(self) -> tuple[Longs, Ids]:
        """Return (query, entity) for every entity that is no rival, queries ascending."""
        row, entity = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        if self.filtered:
            row, entity = self.graph.filter_index[self.side].known(self.anchor, self.relation)
        if not self.kind.may_loop:
            row = np.append(row, np.arange(len(self.anchor)))
            entity = np.append(entity, self.anchor)
        codes = np.unique(row * len(self.graph.entities) + entity)
        row, entity = np.divmod(codes, len(self.graph.entities))
        return row, entity.astype(np.int32)

    def rank(self, model: Model, kernels: Kernels, budget: int) -> Ranks:
        """Rank the answers among the candidates of the type, or else behind all of these."""
        low, high = np.empty((2, len(self.answer)), dtype=np.int64)
        row, entity = self.pairs()
        row_typed = row[self.typed[entity]]
        left = self.typed.sum() - np.bincount(row_typed, minlength=len(self.answer))
        for inside, some in self._groups():
            candidates = np.flatnonzero(self.typed == inside)
            ranks = self._rank_among(model, kernels, budget, some, candidates, (row, entity))
            before = 0 if inside else left[some]
            low[some], high[some] = ranks.optimistic + before, ranks.pessimistic + before
        return Ranks(low, high)

    def _groups(self) -> Iterator[tuple[bool, Longs]]:
        for inside in (True, False):
            if len(some := np.flatnonzero(self.inside == inside)):
                yield inside, some

    def _rank_among(
        self,
        model: Model,
        kernels: Kernels,
        budget: int,
        some: Longs,
        candidates: Longs,
        no_rivals: tuple[Longs, Ids],
    ) -> Ranks:
        """Rank the answers of some queries among candidates that include them."""
        device = model.entity.device
        number = np.full(len(self.graph.entities), -1, dtype=np.int32)  # of a candidate
        number[candidates] = np.arange(len(candidates))
        place = np.full(len(self.answer), -1, dtype=np.int64)  # of a query among some
        place[some] = np.arange(len(some))
        row, entity = place[no_rivals[0]], number[no_rivals[1]]
        kept = (row >= 0) & (entity >= 0)
        row, entity = row[kept], entity[kept]
        queries = np.arange(len(some))
        start, end = np.searchsorted(row, queries), np.searchsorted(row, queries, "right")
        ids = self.anchor[some], self.relation[some], number[self.answer[some]], start, end
        anchors, relations, answers, first, last = (id_tensor(each, device) for each in ids)
        known = Known(first, last, torch.from_numpy(entity).to(device))
        every = id_tensor(candidates, device)

        def score(anchor: Tensor, relation: Tensor) -> Tensor:
            return model.score_shared(self.side, anchor, relation, every)

        chunks = Chunks(max(1, min(len(some), budget // (SCORE_BYTES * len(candidates)))))
        return rank_among(score, Asked(anchors, relations, answers, known), chunks, kernels=kernels)
