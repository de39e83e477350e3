"""Query vectors that meet the rows of candidates in compiled loops, and their way back."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch
from nscaching.kernels.codes import GIVEN
from nscaching.kernels.compiled import CompiledLearner
from nscaching.models import Model

TakeBack = Callable[[Tensor], None]
"""Takes the gradients [n, D] by the queries back to the rows that made them."""


@dataclass(frozen=True)
class Asked:
    """Queries of a batch as the model scores them: first those for heads, then those for tails."""

    anchor: Tensor  # [n]
    relation: Tensor  # [n]
    answer: Tensor  # [n]
    of_heads: int  # the number of queries, from the first, that ask for a head
    weight: Tensor | None  # [n], factors of the scores; None: 1
    share: float  # that a query has of the penalty of its relation

    @classmethod
    def twice(cls, model: Model, batch: Batch) -> Self:
        """Ask for the heads [B] of a batch and for its tails [B]."""
        relation = torch.cat([model.asked(side, batch.relation)[1] for side in Side])
        anchor, answer = torch.cat([batch.tail, batch.head]), torch.cat([batch.head, batch.tail])
        of_heads = 0 if model.reciprocal else len(batch)
        return cls(anchor, relation, answer, of_heads, model.weight_of(relation), share=0.5)

    @classmethod
    def once(cls, model: Model, batch: Batch, replace_head: Tensor) -> tuple[Self, Tensor]:
        """Ask for the replaced entity of each triple; return the order [B] of the triples too."""
        order = replace_head.argsort(descending=True, stable=True)
        head, relation, tail = (ids[order] for ids in (batch.head, batch.relation, batch.tail))
        of_heads = int(replace_head.sum())
        anchor = torch.cat([tail[:of_heads], head[of_heads:]])
        answer = torch.cat([head[:of_heads], tail[of_heads:]])
        weight = model.weight_of(relation)
        return cls(anchor, relation, answer, of_heads, weight, share=1.0), order


class QueryLearner(CompiledLearner):
    """Makes query vectors by compiled loops, or by torch where these do not know the model.

    Torch makes them of the rows of the batch alone, and takes their gradients back to these rows.
    """

    def make_queries(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        return (self._ask_torch if self.kind == GIVEN else self.ask)(asked)

    @abstractmethod
    def ask(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        """Make queries [n, D] of DistMult, ComplEx or TransE; the way back penalises cubes too."""

    @abstractmethod
    def add_rows(self, table: str, ids: Tensor, gradients: Tensor) -> None:
        """Add the gradients [n, D] of some rows of a table, which may repeat.

        Of entities, only anchors can have such gradients.
        """

    @torch.enable_grad()
    def _ask_torch(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        model, rows, relations, place = self.model_of(asked)
        ends = zip(Side, (place[: asked.of_heads], place[asked.of_heads :]), strict=True)
        parts = [model.query(side, i, asked.relation[i]) for side, i in ends if len(i)]
        made = [torch.cat(parts)]
        if self.learning.cubes:
            made.append(self.learning.cubes * cubes_of(model, place, asked))

        def take_back(by_query: Tensor) -> None:
            given = [by_query, *map(torch.ones_like, made[1:])]
            self.add_gradients(asked, *torch.autograd.grad(made, (rows, relations), given))

        return made[0].detach(), take_back

    def model_of(self, asked: Asked) -> tuple[Model, Tensor, Tensor, Tensor]:
        """Return a model of the anchors' rows alone [n, D], its tables, and its ids."""
        rows = self.vectors["entity"][asked.anchor].requires_grad_()
        relations = self.vectors["relation"].detach().requires_grad_()
        place = torch.arange(len(rows), device=rows.device)
        return self.model.with_rows(rows, relations), rows, relations, place

    def add_gradients(self, asked: Asked, by_rows: Tensor, by_relations: Tensor) -> None:
        self.add_rows("entity", asked.anchor, by_rows)
        every = torch.arange(len(by_relations), device=by_rows.device)
        self.add_rows("relation", every, by_relations)


def cubes_of(model: Model, anchor: Tensor, asked: Asked) -> Tensor:
    """Return Σ |a|³ + share·|r|³ of anchors [n] and relations [n]."""
    of_anchors = model.moduli(model.entity_rows(anchor)).pow(3).sum()
    of_relations = model.moduli(model.relation_rows(asked.relation)).pow(3).sum()
    return of_anchors + asked.share * of_relations
