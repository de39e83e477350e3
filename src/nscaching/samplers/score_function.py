"""A scoring function of the user's, in the place of a model."""

from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.models import Model

Score = Callable[[Tensor, Tensor, Tensor], Tensor]
"""score(h, r, t) of ids whose shapes broadcast; the higher, the more plausible."""


class ScoreFunction(Model):
    """A scoring function of the user's, as a model without a query form."""

    def __init__(self, function: Score, entities: int) -> None:
        super().__init__(entities, 0, 0)
        self.function = function

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self.function(head, relation, tail)

    def score_candidates(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        candidates: Tensor,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        scores = self._score_broadcast(side, anchor, relation, candidates)
        if scores.shape != candidates.shape:
            given = "score gave {} for ids of shapes [{n}, 1] and [{n}, {}]; give [{n}, {}]"
            n, k = candidates.shape
            raise UserError(given.format(list(scores.shape), k, k, n=n))
        return scores.float()
