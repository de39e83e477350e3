"""What compiled steps of the cached softmax share on CPUs and GPUs."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import Contrast, Rivals
from nscaching.kernels.codes import GIVEN
from nscaching.kernels.compiled import CompiledLearner
from nscaching.kernels.learner import cubes
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.products import rounded_products
from nscaching.models import Model
from nscaching.models.bilinear import Bilinear

# A cached entity with no larger share of the probability of all false answers gets no gradient.
NEGLIGIBLE = 1e-6

TakeBack = Callable[[Tensor], None]
"""Takes the gradients [2B, D] by the queries back to the rows that made them."""


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
        query, take_back = (self._ask_torch if self.kind == GIVEN else self.ask)(asked)
        losses, by_query = self.contrast(asked, query, negatives, batch)
        take_back(by_query)
        loss = losses.view(2, -1).sum(0)
        if self.learning.relation_weight:
            with rounded_products(loss.device):
                loss += self._predict_relations(asked)
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
        model, rows, relations, place = self._model_of(asked)
        ends = zip(Side, (place[: asked.of_heads], place[asked.of_heads :]), strict=True)
        parts = [model.query(side, i, asked.relation[i]) for side, i in ends if len(i)]
        made = [torch.cat(parts)]
        if self.learning.cubes:
            head, tail = place.view(2, -1).flip(0)
            triple = head, asked.relation.view(2, -1)[1], tail
            made.append(self.learning.cubes * cubes(model, *triple))

        def take_back(by_query: Tensor) -> None:
            given = [by_query, *map(torch.ones_like, made[1:])]
            self._add(asked, *torch.autograd.grad(made, (rows, relations), given))

        return made[0].detach(), take_back

    @torch.enable_grad()
    def _predict_relations(self, asked: Asked) -> Tensor:
        """Return weighted losses [B] of the relations of (h, ?, t), as ``relation_losses`` does.

        Adds their gradients.
        """
        model, rows, relations, place = self._model_of(asked)
        n, learning = len(rows) // 2, self.learning
        used = place if model.reciprocal else place[n:]  # queries (t, ?, h), then (h, ?, t)
        if isinstance(model, Bilinear):
            scores = model.score_relations_of(rows[used], rows.roll(n, 0)[used])
        else:
            scores = model.score_relations(place[used], place.roll(n)[used])
        wanted = asked.relation[used]
        losses = F.cross_entropy(learning.scale * scores, wanted, reduction="none")
        loss = learning.relation_weight * losses.view(-1, n).sum(0)
        self._add(asked, *torch.autograd.grad(loss.sum(), (rows, relations)))
        return loss.detach()

    def _model_of(self, asked: Asked) -> tuple[Model, Tensor, Tensor, Tensor]:
        """Return a model of the anchors' rows alone [2B, D], its tables, and its ids."""
        rows = self.vectors["entity"][asked.anchor].requires_grad_()
        relations = self.vectors["relation"].detach().requires_grad_()
        place = torch.arange(len(rows), device=rows.device)
        return self.model.with_rows(rows, relations), rows, relations, place

    def _add(self, asked: Asked, by_rows: Tensor, by_relations: Tensor) -> None:
        self.add_rows("entity", asked.anchor, by_rows)
        every = torch.arange(len(by_relations), device=by_rows.device)
        self.add_rows("relation", every, by_relations)
