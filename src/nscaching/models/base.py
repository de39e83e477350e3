"""What every scoring function shares: one sign, four query forms, and scoring built on them."""

from __future__ import annotations

import copy
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models import arithmetic
from nscaching.models.arithmetic import MODULI, PIECE_BYTES, Distances, moduli, plain_distances
from nscaching.registry import Registry

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph


class Form(enum.Enum):
    """How a query q = (anchor, relation, side) meets an entity row e."""

    DOT = "q·e"
    DISTANCE = "−‖q − e‖"
    SHIFTED = "−‖q − (e + s·v)‖, with v of the relation; s of the entity, or else −v·e"
    PROJECTED = "−‖q − P_r(e)‖, with a projection P_r of the relation"


class Model(nn.Module, ABC):
    """A scoring function f(h, r, t): the higher, the more plausible the triple.

    A subclass writes ``score`` as its paper defines it. If it also names its ``form`` and defines
    ``query`` (and ``direction`` and ``entity_shift`` for ``Form.SHIFTED``, ``project`` for
    ``Form.PROJECTED``), scoring many candidates and ranking all entities need no more than a query
    vector and the entity table; without a form they fall back to ``score`` by broadcasting.
    """

    family: ClassVar[Literal["translational", "semantic"]]
    form: ClassVar[Form | None] = None
    unit_projection: ClassVar[bool] = False
    """Whether a shifted row e + s·v is scaled to unit length (``Form.SHIFTED`` only)."""
    complex_rows: ClassVar[bool] = False
    """Whether rows are complex numbers [real | imaginary], norm 1 being the sum of their moduli.

    Not for ``Form.SHIFTED``.
    """

    has_matrices: ClassVar[bool] = False
    """Whether a relation has a matrix [D, D]."""

    start_table: Callable[[Tensor, torch.Generator | None], None] = staticmethod(
        arithmetic.start_uniformly
    )
    """Starts a table; another one where the tables hold some of the entities."""

    normalized: ClassVar[tuple[str, ...]] = ()
    """Names of the tables whose rows are scaled to unit length."""

    widths: ClassVar[tuple[int, int] | None] = None
    """Lengths of rows, entity's and relation's, by ``dim``; None: the subclass makes the tables."""

    reciprocal = False
    """Whether relation r + |R| is the inverse of r, so that (?, r, t) is asked as (t, r + |R|, ?).

    Such a model has 2·|R| ``relations``; ``build`` makes it.
    """

    entity: nn.Parameter  # [|E|, D]
    relation: nn.Parameter  # [|R|, D], or [2·|R|, D] if reciprocal

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__()
        self.entities, self.relations, self.dim, self.norm = entities, relations, dim, norm
        if self.widths is not None:
            self.entity = nn.Parameter(torch.empty(entities, self.widths[0] * dim))
            self.relation = nn.Parameter(torch.empty(relations, self.widths[1] * dim))

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start all tables with Xavier's uniform distribution (the paper's "scratch")."""
        for table in self.parameters():
            self.start_table(table, generator)

    @classmethod
    def starts_anywhere(cls) -> bool:
        """Whether the start can be made where the tables stay: no subclass has code of its own."""
        return cls.reset is Model.reset and cls.prepare is Model.prepare

    def prepare(self, graph: KnowledgeGraph) -> None:
        """Set what the model needs of the training triples; called once, on a fresh model."""

    @abstractmethod
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Score triples given as ids whose shapes broadcast; the result has that shape."""

    @property
    def own_relations(self) -> int:
        """The number of the graph's relations, without their inverses."""
        return self.relations // 2 if self.reciprocal else self.relations

    def asked(self, side: Side, relation: Tensor) -> tuple[Side, Tensor]:
        """Return side and relations [...] by which queries of the graph are scored."""
        if self.reciprocal and side is Side.HEAD:
            return Side.TAIL, relation + self.own_relations
        return side, relation

    def score_relations(self, head: Tensor, tail: Tensor) -> Tensor:
        """Score every relation, inverses too, between heads [B] and tails [B] → [B, relations]."""
        every = torch.arange(self.relations, device=head.device)
        return self.score(head.unsqueeze(1), every.unsqueeze(0), tail.unsqueeze(1))

    def with_rows(self, entity: Tensor, relation: Tensor) -> Self:
        """Return this model with other rows in its two tables, of unit length where it asks so."""
        other = copy.copy(self)
        other._parameters = {**self._parameters, "entity": entity, "relation": relation}  # type: ignore[dict-item]
        other.normalized = ()  # type: ignore[misc]  # of the copy alone
        return other

    # The query form.

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the query vectors [B, D] of (anchor, relation) when ``side`` is asked for."""
        raise TypeError(f"{type(self).__name__} has no query form")

    def entity_rows(self, ids: Tensor) -> Tensor:
        """Return the entity vectors [..., D], as the form takes them."""
        return self.rows_of("entity", ids)

    def relation_rows(self, ids: Tensor) -> Tensor:
        """Return the relation vectors [..., D]."""
        return self.rows_of("relation", ids)

    def rows_of(self, table: str, ids: Tensor) -> Tensor:
        """Return rows [..., D] of a table, of unit length if the table is normalized."""
        rows = F.embedding(ids, getattr(self, table))
        return F.normalize(rows, dim=-1) if table in self.normalized else rows

    def direction(self, relation: Tensor) -> Tensor:
        """Return v [B, D] of ``Form.SHIFTED``."""
        raise TypeError(f"{type(self).__name__} has no shifted form")

    def entity_shift(self, ids: Tensor) -> Tensor | None:
        """Return s [...] of ``Form.SHIFTED`` where it is the entity's own; None: it is −v·e."""
        return None

    def moduli(self, rows: Tensor) -> Tensor:
        """Return the sizes of the numbers that vectors [..., D] are made of, which may be pairs."""
        return rows.abs()

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        """Return P_r(e) [..., D] of ``Form.PROJECTED``, of rows [..., D] and relations [...]."""
        raise TypeError(f"{type(self).__name__} has no projected form")

    def weight_of(self, relation: Tensor) -> Tensor | None:
        """Return the positive factor [B] of the score that the relation gives; None: 1."""
        return None

    @property
    def metric(self) -> int:
        """The norm by which distances are measured: 1, 2 or ``MODULI``."""
        return MODULI if self.complex_rows and self.norm == 1 else self.norm

    @property
    def broadcasts(self) -> bool:
        """Whether scoring all entities makes tensors of [queries, |E|, D]."""
        return self.form is None

    def length(self, difference: Tensor) -> Tensor:
        """Return the norm [...] of vectors [..., D]; L1 as a sum, which is several times faster."""
        if self.metric == 2:
            length: Tensor = torch.linalg.vector_norm(difference, dim=-1)
            return length
        return (moduli(difference) if self.metric == MODULI else difference.abs()).sum(-1)

    # Scores built on the query form.

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
