"""What a scoring function says of itself: its tables, its form, the vectors of its queries."""

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
from nscaching.models.arithmetic import MODULI, moduli

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph


class Form(enum.Enum):
    """How a query q = (anchor, relation, side) meets an entity row e."""

    DOT = "q·e"
    DISTANCE = "−‖q − e‖"
    SHIFTED = "−‖q − (e + s·v)‖, with v of the relation; s of the entity, or else −v·e"
    PROJECTED = "−‖q − P_r(e)‖, with a projection P_r of the relation"


class ScoringFunction(nn.Module, ABC):
    """What a scoring function says of itself: see ``Model``, which builds on it."""

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
        return cls.reset is ScoringFunction.reset and cls.prepare is ScoringFunction.prepare

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
