"""Translational models: the relation moves the head, the distance to the tail is the score."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.arithmetic import multiply, times
from nscaching.models.base import MODELS, Model
from nscaching.models.contract import Form

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph

LEAST_SPARSE = 0.3  # TranSparse: share of zeros θ_min in the matrix of the commonest relation


@MODELS.register("TransE")
class TransE(Model):
    """f(h, r, t) = −‖h + r − t‖ with entity vectors h, t of unit length; h, r, t ∈ ℝᵈ.

    A relation is a translation (Bordes et al., 2013).
    """

    family = "translational"
    form: ClassVar[Form | None] = Form.DISTANCE
    widths = (1, 1)
    normalized: ClassVar[tuple[str, ...]] = ("entity",)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return -self.length(h + self.relation_rows(relation) - t)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h + r for the tail, t − r for the head; h and t as the relation moves them."""
        r = self.relation_rows(relation)
        moved = self._moved(self.entity_rows(anchor), anchor, relation)
        return moved + (r if side is Side.TAIL else -r)


@MODELS.register("TransM")
class TransM(TransE):
    """f(h, r, t) = −w_r·‖h + r − t‖ with entity vectors h, t of unit length; h, r, t ∈ ℝᵈ.

    Relations with many answers count less (Fan et al., 2014): w_r = 1 / log(tph_r + hpt_r), by the
    mean numbers of tails per head and heads per tail of the training triples; it is not learned.
    Without training triples w_r is 1.
    """

    weight: Tensor  # [|R|]

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.register_buffer("weight", torch.ones(relations))

    def prepare(self, graph: KnowledgeGraph) -> None:
        tph, hpt = graph.cardinality
        # Of a relation that was seen both are at least one.
        self.weight.copy_(torch.from_numpy(1 / np.log(np.maximum(tph + hpt, 2))))

    def weight_of(self, relation: Tensor) -> Tensor:
        return F.embedding(relation, self.weight.unsqueeze(1)).squeeze(-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self.weight_of(relation) * super().score(head, relation, tail)


@MODELS.register("TransH")
class TransH(TransE):
    """f(h, r, t) = −‖(h − wᵀh·w) + r − (t − wᵀt·w)‖ with h, t, r and w all of unit length.

    Translation on the relation's hyperplane of normal w (Wang et al., 2014): a row e is shifted by
    s = −wᵀe along v = w.
    """

    form = Form.SHIFTED
    normalized = ("entity", "relation", "normal")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.normal = nn.Parameter(torch.empty(relations, dim))

    def direction(self, relation: Tensor) -> Tensor:
        return self.rows_of("normal", relation)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t, w = self.entity_rows(head), self.entity_rows(tail), self.direction(relation)
        h = h - (w * h).sum(-1, keepdim=True) * w
        t = t - (w * t).sum(-1, keepdim=True) * w
        return -self.length(h + self.relation_rows(relation) - t)


@MODELS.register("TransD")
class TransD(TransE):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = (e + w_r·w_eᵀe) scaled to unit length.

    Ji et al., 2015. h, t and r are of unit length too; the projection vectors w_e and w_r are free.
    A row e is shifted by the scalar s = w_eᵀe along v = w_r.
    """

    form = Form.SHIFTED
    unit_projection = True
    normalized = ("entity", "relation")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.entity_projection = nn.Parameter(torch.empty(entities, dim))
        self.relation_projection = nn.Parameter(torch.empty(relations, dim))

    def direction(self, relation: Tensor) -> Tensor:
        return F.embedding(relation, self.relation_projection)

    def entity_shift(self, ids: Tensor) -> Tensor:
        return (self.entity_rows(ids) * F.embedding(ids, self.entity_projection)).sum(-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t, w_r = self.entity_rows(head), self.entity_rows(tail), self.direction(relation)
        w_h, w_t = (F.embedding(ids, self.entity_projection) for ids in (head, tail))
        h = F.normalize(h + (w_h * h).sum(-1, keepdim=True) * w_r, dim=-1)
        t = F.normalize(t + (w_t * t).sum(-1, keepdim=True) * w_r, dim=-1)
        return -self.length(h + self.relation_rows(relation) - t)


@MODELS.register("TransR")
class TransR(TransE):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = M_r e scaled to unit length; h, r, t ∈ ℝᵈ.

    Translation in the relation's own space (Lin et al., 2015). h, t and r are of unit length too:
    the papers of TransR and TransD ask for lengths of one at most, of projected vectors as well.
    M_r ∈ ℝᵈˣᵈ is stored row by row as a row of d² and starts as the identity, as TransE.
    """

    form = Form.PROJECTED
    has_matrices = True
    normalized = ("entity", "relation")

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.matrix = nn.Parameter(torch.empty(relations, dim * dim))

    def reset(self, generator: torch.Generator | None = None) -> None:
        super().reset(generator)
        with torch.no_grad():
            self.matrix.copy_(torch.eye(self.dim).view(-1))

    def matrices(self, relation: Tensor) -> Tensor:
        """Return the numbers of M_r [..., d·d]."""
        return F.embedding(relation, self.matrix)

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        return F.normalize(multiply(rows, relation, self.matrices, self.relations), dim=-1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = (self.project(self.entity_rows(ids), relation) for ids in (head, tail))
        return -self.length(h + self.relation_rows(relation) - t)


@MODELS.register("TranSparse")
class TranSparse(TransR):
    """f(h, r, t) = −‖h⊥ + r − t⊥‖ with e⊥ = M_r e scaled to unit length; h, r, t ∈ ℝᵈ.

    TransR whose matrices are the sparser, the rarer the relation (Ji et al., 2016): of M_r's
    numbers off the diagonal a share θ_r = 1 − (1 − θ_min)·N_r/N_max is zero for good, chosen at
    random; N_r counts the training triples of r. This is the "share" variant: one matrix for head
    and tail. Without training triples the model is TransR.
    """

    mask: Tensor  # bool [|R|, d·d]

    def __init__(self, entities: int, relations: int, dim: int, norm: int = 1) -> None:
        super().__init__(entities, relations, dim, norm)
        self.register_buffer("mask", torch.ones(relations, dim * dim, dtype=torch.bool))

    def prepare(self, graph: KnowledgeGraph) -> None:
        count = np.bincount(graph.train[:, 1], minlength=self.relations)
        density = torch.from_numpy((1 - LEAST_SPARSE) * count / max(1, count.max()))
        drawn = torch.rand(self.mask.shape, generator=torch.Generator().manual_seed(0))
        diagonal = torch.eye(self.dim, dtype=torch.bool).view(-1)
        self.mask.copy_((drawn < density.unsqueeze(1)) | diagonal)

    def matrices(self, relation: Tensor) -> Tensor:
        return super().matrices(relation) * F.embedding(relation, self.mask)


@MODELS.register("RotatE")
class RotatE(Model):
    """f(h, r, t) = −‖h∘r − t‖ with |rᵢ| = 1; h, t ∈ ℂᵈ, stored as rows [real | imaginary] of 2d.

    A relation turns the numbers of the head (Sun et al., 2019): a row of d phases, at the start of
    any angle. Norm 1 is the sum of the d moduli, norm 2 the Euclidean length: neither changes when
    everything is turned, so that ‖h∘r − t‖ = ‖h − conj(r)∘t‖.
    """

    family = "translational"
    form = Form.DISTANCE
    complex_rows = True
    widths = (2, 1)

    def reset(self, generator: torch.Generator | None = None) -> None:
        super().reset(generator)
        nn.init.uniform_(self.relation, -math.pi, math.pi, generator=generator)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return -self.length(self.query(Side.TAIL, head, relation) - self.entity_rows(tail))

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h∘r for the tail, conj(r)∘t for the head."""
        phase = self.relation_rows(relation)
        re, im = self.entity_rows(anchor).chunk(2, dim=-1)
        phase = phase if side is Side.TAIL else -phase
        return torch.cat(times(re, im, phase.cos(), phase.sin()), dim=-1)
