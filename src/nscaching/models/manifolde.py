"""ManifoldE (Xiao, Huang and Zhu, 2016): tails lie on a surface around the translated head."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.arithmetic import Distances, plain_distances
from nscaching.models.base import MODELS
from nscaching.models.translational import TransE


@MODELS.register("ManifoldE")
class ManifoldE(TransE):
    """f(h, r, t) = −|‖h + r − t‖² − D_r²|: t on a sphere around h + r; h, r, t ∈ ℝᵈ.

    Entity vectors h, t are of length d^¼ (the paper leaves it free): squares of their distances
    span √d then, as L1 distances of unit vectors do, so that the same margins serve. The radius D_r
    is learned, as a row of one number, and starts as long as an entity vector. Distances are
    Euclidean whatever the norm.
    """

    form = None
    broadcasts = False  # all entities are scored by a query vector

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.radius = nn.Parameter(torch.empty(relations, 1))

    def reset(self, generator: torch.Generator | None = None) -> None:
        super().reset(generator)
        nn.init.constant_(self.radius, self.dim**0.25)

    def entity_rows(self, ids: Tensor) -> Tensor:
        length: float = self.dim**0.25
        return length * super().entity_rows(ids)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        square = (h + self.relation_rows(relation) - t).square().sum(-1)
        return -(square - self._square(relation)).abs()

    def _measure(self, query: Tensor, rows: Tensor, distances: Distances) -> Tensor:
        return distances(query, rows, 2).square()

    def _wanted(self, side: Side, query: Tensor, relation: Tensor) -> Tensor:
        """Return the measure [B] of entities that lie on the surface."""
        return self._square(relation)

    def _square(self, relation: Tensor) -> Tensor:
        return F.embedding(relation, self.radius).square().squeeze(-1)

    def _score_piece(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor, table: Tensor | None
    ) -> Tensor:
        rows = self.entity_rows(candidates) if table is None else F.embedding(candidates, table)
        query = self.query(side, anchor, relation)
        measured = self._measure(query.unsqueeze(1), rows, plain_distances).squeeze(1)
        return measured.sub_(self._wanted(side, query, relation).unsqueeze(1)).abs_().neg_()

    def score_shared(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        entities: Tensor,
        distances: Distances = plain_distances,
    ) -> Tensor:
        side, relation = self.asked(side, relation)
        query = self.query(side, anchor, relation)
        measured = self._measure(query, self.entity_rows(entities), distances)
        return measured.sub_(self._wanted(side, query, relation).unsqueeze(1)).abs_().neg_()


@MODELS.register("ManifoldE-hyperplane")
class ManifoldEHyperplane(ManifoldE):
    """f(h, r, t) = −|(h + r_H)·(t + r_T) − D_r²|: t on a hyperplane; h, t, r_H, r_T ∈ ℝᵈ.

    Entity vectors are of length d^¼ here too. A relation's row of 2d is [r_H | r_T].
    """

    widths = (1, 2)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        r_head, r_tail = self.relation_rows(relation).chunk(2, dim=-1)
        return -(((h + r_head) * (t + r_tail)).sum(-1) - self._square(relation)).abs()

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the hyperplane's normal: h + r_H for the tail, t + r_T for the head."""
        r, _ = side.query(*self.relation_rows(relation).chunk(2, dim=-1))
        return self.entity_rows(anchor) + r

    def _measure(self, query: Tensor, rows: Tensor, distances: Distances) -> Tensor:
        return query @ rows.mT

    def _wanted(self, side: Side, query: Tensor, relation: Tensor) -> Tensor:
        _, other = side.query(*self.relation_rows(relation).chunk(2, dim=-1))
        return self._square(relation) - (query * other).sum(-1)
