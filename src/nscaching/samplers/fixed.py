"""Fixed distributions: uniform (Bordes et al., 2013) and Bernoulli (Wang et al., 2014)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from nscaching.batches import Batch, Negatives
from nscaching.graph import Side
from nscaching.models import Model
from nscaching.samplers._base import SAMPLERS, Sampler

__all__ = ["Bernoulli", "Uniform"]

# Known triples are drawn anew this often; then the few that are left choose among all entities.
REDRAWS = 10


@SAMPLERS.register("uniform")
class Uniform(Sampler):
    """Replaces the head or the tail, by a fair coin, with an entity drawn uniformly."""

    side: ClassVar[Literal["bernoulli", "uniform"]] = "uniform"
    one_side = True

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        """Draw one negative per triple."""
        if not self.config.filter_known:
            return self.kernels.draw(
                batch, self.head_probability, self.entities, self.seed, self.tick
            )[0]
        replace_head, entity = self.choose_head(batch), self._draw(len(batch))
        for side, rows in ((Side.HEAD, replace_head), (Side.TAIL, ~replace_head)):
            key = batch.key(side)[rows]
            entity[rows] = self._without_known(side, key, entity[rows])
        return batch.corrupt(replace_head, entity, entity)

    def phase(self) -> object:
        """All steps are alike, but for the search of entities that are not known."""
        return None if self.config.filter_known else "draw"

    def _without_known(self, side: Side, key: Tensor, entity: Tensor) -> Tensor:
        """Replace each entity [n] that makes a training triple of its key [n]."""
        for _ in range(REDRAWS):
            entity = torch.where(self.is_known(side, key, entity), self._draw(len(key)), entity)
        known = self.is_known(side, key, entity)
        entity[known] = self.choose_entities(side, key[known], 1).squeeze(1)
        return entity

    def _draw(self, count: int) -> Tensor:
        return torch.randint(self.entities, (count,), generator=self.random, device=self.device)


@SAMPLERS.register("bernoulli")
class Bernoulli(Uniform):
    """As uniform, but the head is replaced with probability tph / (tph + hpt) of the relation."""

    side = "bernoulli"
