"""What every scoring function shares: scores of many candidates, built on four query forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.models import arithmetic
from nscaching.models.arithmetic import PIECE_BYTES, Distances, plain_distances
from nscaching.models.contract import Form, ScoringFunction
from nscaching.registry import Registry

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph


class Model(ScoringFunction):
    """A scoring function f(h, r, t): the higher, the more plausible the triple.

    A subclass writes ``score`` as its paper defines it. If it also names its ``form`` and defines
    ``query`` (and ``direction`` and ``entity_shift`` for ``Form.SHIFTED``, ``project`` for
    ``Form.PROJECTED``), scoring many candidates and ranking all entities need no more than a query
    vector and the entity table; without a form they fall back to ``score`` by broadcasting.
    """

    def score_relations(self, head: Tensor, tail: Tensor) -> Tensor:
        """Score every relation, inverses too, between heads [B] and tails [B] → [B, relations]."""
        every = torch.arange(self.relations, device=head.device)
        return self.score(head.unsqueeze(1), every.unsqueeze(0), tail.unsqueeze(1))

    def score_candidates(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        candidates: Tensor,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Score K candidates per query: anchor [B], relation [B], candidates [B, K] → [B, K].

        With a ``dtype`` the rows of the candidates are rounded to it (models with a form only).
        """
        side, relation = self.asked(side, relation)
        # With more candidates than entities it is cheaper to make every entity's row once.
        whole = dtype is not None or candidates.numel() > self.entities
        table = self.table(dtype) if whole and not self.broadcasts else None
        size = self._piece_size(candidates)
        pieces = zip(*(ids.split(size) for ids in (anchor, relation, candidates)), strict=True)
        return torch.cat([self._score_piece(side, a, r, c, table) for a, r, c in pieces])

    def _piece_size(self, candidates: Tensor) -> int:
        row_bytes = 4 * candidates.shape[1] * self.entity.shape[1]
        return max(1, PIECE_BYTES[candidates.device.type] // max(1, row_bytes))

    def _score_piece(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor, table: Tensor | None
    ) -> Tensor:
        if self.form is None:
            return self._score_broadcast(side, anchor, relation, candidates)
        return self.meet_candidates(self.query(side, anchor, relation), relation, candidates, table)

    def score_corrupted(
        self, replace_head: Tensor, head: Tensor, relation: Tensor, tail: Tensor, entity: Tensor
    ) -> Tensor:
        """Score triples [B] with each of K entities [B, K] as head or as tail → [B, K].

        Twin of ``score``: with a form, what stays of a triple is made once and not K times.
        """
        if self.form is None:
            new_head = replace_head.unsqueeze(1)
            heads = torch.where(new_head, entity, head.unsqueeze(1))
            tails = torch.where(new_head, tail.unsqueeze(1), entity)
            return self.score(heads, relation.unsqueeze(1), tails)
        query = self._corrupted_query(replace_head, head, relation, tail)
        table = self.table() if entity.numel() > self.entities else None
        return self.meet_candidates(query, relation, entity, table)

    def table(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the rows [|E|, D] of all entities, rounded to ``dtype`` if there is one."""
        rows = self.entity_rows(self._everyone())
        return rows if dtype is None else rows.to(dtype).to(rows.dtype)

    def score_all(
        self, side: Side, anchor: Tensor, relation: Tensor, distances: Distances = plain_distances
    ) -> Tensor:
        """Score every entity as the answer: anchor [B], relation [B] → [B, |E|].

        ``distances`` may be a faster twin of this module's.
        """
        at_once = max(1, arithmetic.MOST_ROWS // self.entity.shape[1])
        if torch.is_grad_enabled() or self.entities <= at_once:
            return self.score_shared(side, anchor, relation, self._everyone(), distances)
        out = self.entity.new_empty(len(anchor), self.entities)
        for first in range(0, self.entities, at_once):
            last = min(first + at_once, self.entities)
            piece = torch.arange(first, last, device=out.device)
            out[:, first:last] = self.score_shared(side, anchor, relation, piece, distances)
        return out

    def score_shared(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        entities: Tensor,
        distances: Distances = plain_distances,
    ) -> Tensor:
        """Score the same entities [K] as the answer of every query → [B, K]."""
        side, relation = self.asked(side, relation)
        if self.form is None:
            return self._score_broadcast(side, anchor, relation, entities.unsqueeze(0))
        return self.meet_shared(self.query(side, anchor, relation), relation, entities, distances)

    def score_all_corrupted(
        self,
        replace_head: Tensor,
        head: Tensor,
        relation: Tensor,
        tail: Tensor,
        distances: Distances = plain_distances,
    ) -> Tensor:
        """Score triples [B] with every entity as head or as tail → [B, |E|]."""
        if self.form is not None:
            query = self._corrupted_query(replace_head, head, relation, tail)
            return self.meet_shared(query, relation, self._everyone(), distances)

        def score(new_tail: Tensor, row: Tensor) -> Tensor:
            side = Side.TAIL if new_tail else Side.HEAD
            anchor, _ = side.query(head[row], tail[row])
            return self.score_all(side, anchor, relation[row], distances)

        return self._score_groups((~replace_head).int(), score)

    def _corrupted_query(
        self, replace_head: Tensor, head: Tensor, relation: Tensor, tail: Tensor
    ) -> Tensor:
        """Return the queries [B, D] of each triple without its replaced entity."""
        queries = self.query(Side.HEAD, tail, relation), self.query(Side.TAIL, head, relation)
        return torch.where(replace_head.unsqueeze(1), *queries)

    def meet_candidates(
        self, query: Tensor, relation: Tensor, candidates: Tensor, table: Tensor | None = None
    ) -> Tensor:
        """Score candidates [B, K] by queries [B, D]; a table may hold the rows of all entities."""
        rows = self.entity_rows(candidates) if table is None else F.embedding(candidates, table)
        rows = self._moved(rows, candidates, relation.unsqueeze(1))
        if self.form is Form.DOT:
            scores = torch.bmm(rows, query.unsqueeze(2)).squeeze(2)
        elif torch.is_grad_enabled():  # the gradient of cdist is slow
            scores = -self.length(query.unsqueeze(1) - rows)
        else:
            scores = plain_distances(query.unsqueeze(1), rows, self.metric).squeeze(1).neg_()
        return self._weighted(scores, relation)

    def meet_shared(
        self,
        query: Tensor,
        relation: Tensor,
        entities: Tensor,
        distances: Distances = plain_distances,
    ) -> Tensor:
        """Score the same entities [K] by all queries [B, D] → [B, K]."""
        rows = self.entity_rows(entities)

        def score(one: Tensor, row: Tensor) -> Tensor:
            return -distances(query[row], self._moved(rows, entities, one), self.metric)

        if self.form is Form.DOT:
            scores = query @ rows.T
        elif self.form is Form.DISTANCE:
            scores = -distances(query, rows, self.metric)
        else:  # each relation has one table of moved rows
            scores = self._score_groups(relation, score)
        return self._weighted(scores, relation)

    def _score_groups(self, group: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Score entities by ``score(group, places)`` for the queries [B] of each group."""
        groups, counts = group.unique(return_counts=True)
        order = group.argsort(stable=True)
        places = order.split(counts.tolist())
        parts = [score(*each) for each in zip(groups, places, strict=True)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self.entity.new_empty(0, self.entities)
        # Joined and sorted once: autograd would copy a table for each part written into the table.
        return torch.cat(parts)[order.argsort()]

    def _moved(self, rows: Tensor, ids: Tensor, relation: Tensor) -> Tensor:
        """Return entity rows [..., D] in the place where queries of relations [...] meet them."""
        if self.form is Form.PROJECTED:
            return self.project(rows, relation)
        if self.form is not Form.SHIFTED:
            return rows
        direction = self.direction(relation.flatten())
        direction = direction.view(*relation.shape, direction.shape[-1])
        shift = self.entity_shift(ids)
        if shift is None:
            shift = -(rows * direction).sum(-1)
        shifted = rows + shift.unsqueeze(-1) * direction
        return F.normalize(shifted, dim=-1) if self.unit_projection else shifted

    def _everyone(self) -> Tensor:
        return torch.arange(self.entities, device=self.entity.device)

    def _weighted(self, scores: Tensor, relation: Tensor) -> Tensor:
        weight = self.weight_of(relation)
        return scores if weight is None else scores * weight.unsqueeze(1)

    def _score_broadcast(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        head, tail = side.query(anchor.unsqueeze(1), candidates)
        return self.score(head, relation.unsqueeze(1), tail)


MODELS: Registry[Model] = Registry("model", Model, "nscaching.models")  # type: ignore[type-abstract]


def build(
    name: str | type[Model], graph: KnowledgeGraph, dim: int, norm: int, reciprocal: bool = False
) -> Model:
    relations = len(graph.relations) * (2 if reciprocal else 1)
    model = MODELS.get(name)(len(graph.entities), relations, dim, norm)
    model.reciprocal = reciprocal
    return model
