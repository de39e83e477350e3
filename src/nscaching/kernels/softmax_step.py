"""What compiled steps of the cached softmax share on CPUs and GPUs."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import Contrast, Rivals
from nscaching.kernels.codes import KINDS
from nscaching.kernels.compiled import CompiledLearner
from nscaching.kernels.learner import cubes, relation_losses
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.models import Model

# A cached entity with no larger share of the probability of all false answers gets no gradient.
NEGLIGIBLE = 1e-6

TakeBack = Callable[[Tensor], Tensor | None]
"""Takes the gradients [2B, D] by the queries back; returns losses [B] of tasks beside the queries,
if there are any."""


@dataclass(frozen=True)
class Asked:
    """The queries of a batch as the model scores them: first of its heads, then of its tails."""

    anchor: Tensor  # [2B]
    relation: Tensor  # [2B]
    answer: Tensor  # [2B]
    of_heads: int  # the number of queries, from the first, that ask for a head
    weight: Tensor | None  # [2B], factors of the scores; None: 1

    @classmethod
    def by(cls, model: Model, batch: Batch) -> Self:
        relation = torch.cat([model.asked(side, batch.relation)[1] for side in Side])
        anchor, answer = torch.cat([batch.tail, batch.head]), torch.cat([batch.head, batch.tail])
        of_heads = 0 if model.reciprocal else len(batch)
        return cls(anchor, relation, answer, of_heads, model.weight_of(relation))


class SoftmaxStep(CompiledLearner):
    """−log p(t | h, r) − log p(h | r, t) as ``SoftmaxLearner`` has it, without autograd's tables.

    Query vectors meet the rows of candidates in compiled loops. Where queries are not compiled,
    torch makes them of the rows of the batch alone, and takes their gradients back to these rows.
    """

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        assert isinstance(negatives, Rivals)
        self.current()
        asked = Asked.by(self.model, batch)
        compiled = type(self.model) in KINDS and not self.learning.relation_weight
        query, take_back = self.ask(asked) if compiled else self._ask_torch(asked)
        losses, by_query = self.contrast(asked, query, negatives, batch)
        loss = losses.view(2, -1).sum(0)
        other = take_back(by_query)
        loss = loss if other is None else loss + other
        self.move(len(batch), loss, loss > LOGISTIC_ZERO, sums)

    @abstractmethod
    def ask(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        """Make queries [2B, D] of DistMult, ComplEx or TransE; the way back penalises cubes too."""

    @abstractmethod
    def contrast(
        self, asked: Asked, query: Tensor, rivals: Rivals, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [2B] of the queries and their gradients [2B, D] by the queries.

        Adds the gradients of all candidates' rows, and refreshes the cache.
        """

    @abstractmethod
    def add_rows(self, table: str, ids: Tensor, gradients: Tensor) -> None:
        """Add the gradients [n, D] of some rows of a table, which may repeat."""

    @abstractmethod
    def move(self, n: int, loss: Tensor, teaching: Tensor, sums: Tensor) -> None:
        """Move the parameters by the gradients of n triples; add to the sums [4] of a step."""

    @torch.enable_grad()
    def _ask_torch(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        n, learning = len(asked.anchor) // 2, self.learning
        rows = self.vectors["entity"][asked.anchor].requires_grad_()
        relations = self.vectors["relation"].detach().requires_grad_()
        model = self.model.with_rows(rows, relations)
        place = torch.arange(2 * n, device=rows.device)
        ends = zip(Side, (place[: asked.of_heads], place[asked.of_heads :]), strict=True)
        parts = [model.query(side, i, asked.relation[i]) for side, i in ends if len(i)]
        query = torch.cat(parts)
        losses, extra = None, rows.new_zeros(())
        triple = place[n:], asked.relation[n:], place[:n]
        if learning.relation_weight:
            losses = learning.relation_weight * relation_losses(model, *triple, learning.scale)
            extra = extra + losses.sum()
        if learning.cubes:
            extra = extra + learning.cubes * cubes(model, *triple)

        def take_back(by_query: Tensor) -> Tensor | None:
            leaves = (rows, relations)
            outputs, given = [query], [by_query]
            if extra.requires_grad:
                outputs, given = [query, extra], [by_query, torch.ones_like(extra)]
            by_rows, by_relations = torch.autograd.grad(outputs, leaves, given)
            self.add_rows("entity", asked.anchor, by_rows)
            everyone = torch.arange(len(by_relations), device=rows.device)
            self.add_rows("relation", everyone, by_relations)
            return None if losses is None else losses.detach()

        return query.detach(), take_back
