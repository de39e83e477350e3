"""What every scoring function shares: one sign, three query forms, and scoring built on them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.errors import UserError
from nscaching.graph import Side
from nscaching.registry import Registry

__all__ = ["DIVERGED", "MODELS", "Distances", "Form", "Model", "finite", "plain_distances"]

# Gathered candidate rows [queries, K, D] are scored in pieces of this size: small enough for a
# processor's cache, large enough that a GPU needs few launches.
PIECE_BYTES = {"cpu": 2 << 20, "cuda": 1 << 30}


DIVERGED = "the model gives scores that are not finite: its training diverged"

Distances = Callable[[Tensor, Tensor, int], Tensor]
"""(query [n, D], rows [E, D], norm) → ‖q − e‖ [n, E]."""


class Form(enum.Enum):
    """How a query q = (anchor, relation, side) meets an entity row e."""

    DOT = "q·e"
    DISTANCE = "−‖q − e‖"
    SHIFTED = "−‖q − (e + s·v)‖, with v of the relation; s of the entity, or else −v·e"


class Model(nn.Module, ABC):
    """A scoring function f(h, r, t): the higher, the more plausible the triple.

    A subclass writes ``score`` as its paper defines it. If it also says its ``form`` and gives
    ``query`` (and ``direction`` and ``entity_shift`` for ``Form.SHIFTED``), scoring many
    candidates and ranking all entities need no more than a query vector and the entity table;
    without a form they fall back to ``score`` by broadcasting.
    """

    family: ClassVar[Literal["translational", "semantic"]]
    form: ClassVar[Form | None] = None
    unit_projection: ClassVar[bool] = False
    """Whether a shifted row e + s·v is scaled to unit length (``Form.SHIFTED`` only)."""

    entity: nn.Parameter  # [|E|, D]
    relation: nn.Parameter  # [|R|, D]

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__()
        self.entities, self.relations, self.dim, self.norm = entities, relations, dim, norm

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start all tables with Xavier's uniform distribution (the paper's "scratch")."""
        for table in self.parameters():
            nn.init.xavier_uniform_(table, generator=generator)

    @abstractmethod
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Score triples given as ids whose shapes broadcast; the result has that shape."""

    # The query form.

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the query vectors [B, D] of (anchor, relation) when ``side`` is asked for."""
        raise TypeError(f"{type(self).__name__} has no query form")

    def entity_rows(self, ids: Tensor) -> Tensor:
        """Return the rows [..., D] with which entities enter the form."""
        return F.embedding(ids, self.entity)

    def direction(self, relation: Tensor) -> Tensor:
        """Return v [B, D] of ``Form.SHIFTED``."""
        raise TypeError(f"{type(self).__name__} has no shifted form")

    def entity_shift(self, ids: Tensor) -> Tensor | None:
        """Return s [...] of ``Form.SHIFTED`` where it is the entity's own; None: it is −v·e."""
        return None

    def moduli(self, rows: Tensor) -> Tensor:
        """Return the sizes of the numbers that vectors [..., D] are made of, which may be pairs."""
        return rows.abs()

    def length(self, difference: Tensor) -> Tensor:
        """Return the norm [...] of vectors [..., D]; L1 as a sum, which is several times faster."""
        if self.norm == 1:
            return difference.abs().sum(-1)
        length: Tensor = torch.linalg.vector_norm(difference, dim=-1)
        return length

    # Built on it.

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
        # With more candidates than entities it is cheaper to make every entity's row once.
        table = None
        if dtype is not None or candidates.numel() > self.entities:
            table = self.table(dtype)
        row_bytes = 4 * candidates.shape[1] * self.entity.shape[1]
        piece = max(1, PIECE_BYTES[anchor.device.type] // max(1, row_bytes))
        pieces = zip(
            anchor.split(piece), relation.split(piece), candidates.split(piece), strict=True
        )
        return torch.cat([self._score_piece(side, *each, table) for each in pieces])

    def _score_piece(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor, table: Tensor | None
    ) -> Tensor:
        if self.form is None:
            return self._score_broadcast(side, anchor, relation, candidates)
        query = self.query(side, anchor, relation)
        # [B, K, D]
        rows = self.entity_rows(candidates) if table is None else F.embedding(candidates, table)
        if self.form is Form.DOT:
            return torch.bmm(rows, query.unsqueeze(2)).squeeze(2)
        if self.form is Form.SHIFTED:
            rows = self._shifted(rows, candidates, self.direction(relation).unsqueeze(1))
        return -plain_distances(query.unsqueeze(1), rows, self.norm).squeeze(1)

    def table(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the rows [|E|, D] of all entities, rounded to ``dtype`` if there is one."""
        rows = self.entity_rows(self._everyone())
        return rows if dtype is None else rows.to(dtype).to(rows.dtype)

    def score_all(
        self, side: Side, anchor: Tensor, relation: Tensor, distances: Distances | None = None
    ) -> Tensor:
        """Score every entity as the answer: anchor [B], relation [B] → [B, |E|].

        ``distances`` may be a faster twin of this module's.
        """
        distances = distances or plain_distances
        everyone = self._everyone()
        if self.form is None:
            return self._score_broadcast(side, anchor, relation, everyone.unsqueeze(0))
        query, rows = self.query(side, anchor, relation), self.entity_rows(everyone)
        if self.form is Form.DOT:
            return query @ rows.T
        if self.form is Form.DISTANCE:
            return -distances(query, rows, self.norm)
        # The shift depends on the relation alone, so each relation has one table of shifted rows.
        scores = query.new_empty(len(anchor), self.entities)
        for one in relation.unique():
            asked = relation == one
            direction = self.direction(one.unsqueeze(0))
            shifted = self._shifted(rows, everyone, direction)
            scores[asked] = -distances(query[asked], shifted, self.norm)
        return scores

    def _everyone(self) -> Tensor:
        return torch.arange(self.entities, device=self.entity.device)

    def _shifted(self, rows: Tensor, ids: Tensor, direction: Tensor) -> Tensor:
        shift = self.entity_shift(ids)
        if shift is None:
            shift = -(rows * direction).sum(-1)
        shifted = rows + shift.unsqueeze(-1) * direction
        return F.normalize(shifted, dim=-1) if self.unit_projection else shifted

    def _score_broadcast(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        anchor, relation = anchor.unsqueeze(1), relation.unsqueeze(1)
        if side is Side.HEAD:
            return self.score(candidates, relation, anchor)
        return self.score(anchor, relation, candidates)


def plain_distances(query: Tensor, rows: Tensor, norm: int) -> Tensor:
    """Return ‖q − e‖ [..., n, E] of queries [..., n, D] and rows [..., E, D]."""
    # The matrix-product shortcut for Euclidean distances loses the small ones to rounding.
    return torch.cdist(query, rows, p=float(norm), compute_mode="donot_use_mm_for_euclid_dist")


def finite(scores: Tensor) -> Tensor:
    """Return the scores, or raise a UserError: what a diverged model says is worth nothing."""
    if not torch.isfinite(scores).all():
        raise UserError(DIVERGED)
    return scores


MODELS: Registry[Model] = Registry("model", Model, "nscaching.models")  # type: ignore[type-abstract]
