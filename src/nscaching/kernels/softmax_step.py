"""What compiled steps of the cached softmax share on CPUs and GPUs."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import Contrast, Rivals
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.products import rounded_products
from nscaching.kernels.queries import Asked, QueryLearner
from nscaching.models.bilinear import Bilinear

# A cached entity with no larger share of the probability of all false answers gets no gradient.
NEGLIGIBLE = 1e-6


class SoftmaxStep(QueryLearner):
    """−log p(t | h, r) − log p(h | r, t) as ``SoftmaxLearner`` has it, without autograd's tables.

    Query vectors meet the rows of candidates in compiled loops.
    """

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        assert isinstance(negatives, Rivals)
        self.current()
        asked = Asked.twice(self.model, batch)
        query, take_back = self.make_queries(asked)
        losses, by_query = self.contrast(asked, query, negatives, batch)
        take_back(by_query)
        loss = losses.view(2, -1).sum(0)
        if self.learning.relation_weight:
            with rounded_products(loss.device):
                loss += self._predict_relations(asked)
        self.move(len(batch), loss, loss > LOGISTIC_ZERO, sums)

    @abstractmethod
    def contrast(
        self, asked: Asked, query: Tensor, rivals: Rivals, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [2B] of the queries and their gradients [2B, D] by the queries.

        Adds the gradients of all candidates' rows, and refreshes the cache.
        """

    @abstractmethod
    def move(self, n: int, loss: Tensor, teaching: Tensor, sums: Tensor) -> None:
        """Move the parameters by the gradients of n triples; add to the sums [4] of a step."""

    @torch.enable_grad()
    def _predict_relations(self, asked: Asked) -> Tensor:
        """Return weighted losses [B] of the relations of (h, ?, t), as ``relation_losses`` does.

        Adds their gradients.
        """
        model, rows, relations, place = self.model_of(asked)
        n, learning = len(rows) // 2, self.learning
        used = place if model.reciprocal else place[n:]  # queries (t, ?, h), then (h, ?, t)
        if isinstance(model, Bilinear):
            scores = model.score_relations_of(rows[used], rows.roll(n, 0)[used])
        else:
            scores = model.score_relations(place[used], place.roll(n)[used])
        wanted = asked.relation[used]
        losses = F.cross_entropy(learning.scale * scores, wanted, reduction="none")
        loss = learning.relation_weight * losses.view(-1, n).sum(0)
        self.add_gradients(asked, *torch.autograd.grad(loss.sum(), (rows, relations)))
        return loss.detach()
