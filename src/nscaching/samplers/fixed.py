"""Fixed distributions: uniform (Bordes et al., 2013) and Bernoulli (Wang et al., 2014)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from nscaching.batches import Batch
from nscaching.graph import Side
from nscaching.models import Model
from nscaching.samplers._base import SAMPLERS, Negatives, Sampler

__all__ = ["Bernoulli", "Uniform"]

# A redraw of known triples ends after this many rounds: a query may have every entity as an answer.
REDRAWS = 10


@SAMPLERS.register("uniform")
class Uniform(Sampler):
    """Replaces the head or the tail, by a fair coin, with an entity drawn uniformly."""

    side: ClassVar[Literal["bernoulli", "uniform"]] = "uniform"

    def sample(self, batch: Batch, model: Model) -> Negatives:
        """Draw one negative per triple."""
        replace_head = self.choose_head(batch)
        entity = self._draw(len(batch))
        for _ in range(REDRAWS if self.config.filter_known else 0):
            known = torch.where(
                replace_head,
                self.is_known(Side.HEAD, self.keys[Side.HEAD][batch.row], entity),
                self.is_known(Side.TAIL, self.keys[Side.TAIL][batch.row], entity),
            )
            entity = torch.where(known, self._draw(len(batch)), entity)
        return self.corrupt(batch, replace_head, entity, entity)

    def _draw(self, count: int) -> Tensor:
        return torch.randint(self.entities, (count,), generator=self.random, device=self.device)


@SAMPLERS.register("bernoulli")
class Bernoulli(Uniform):
    """As uniform, but the head is replaced with probability tph / (tph + hpt) of the relation."""

    side = "bernoulli"
