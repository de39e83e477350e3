"""What kernels see of the negative cache: rows to draw from, to refresh, or to compare with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.batch import Negatives
from nscaching.kernels.choose import repeated, select
from nscaching.models import Model
from nscaching.settings import CacheSettings

IsKnown = Callable[[Side, Tensor, Tensor], Tensor]
"""(side, key [n, 1], entity [n, C]) → whether the entity makes a training triple of the key."""


@dataclass(frozen=True)
class CacheSide:
    """The cache of one side and the query that each of its keys stands for."""

    side: Side
    ids: Tensor  # int32 [keys, N1]
    anchor: Tensor  # [keys]
    relation: Tensor  # [keys]


@dataclass(frozen=True)
class CacheAccess:
    """Rows of the caches to draw from or to refresh, with which model and settings."""

    sides: Sequence[CacheSide]
    keys: Sequence[Tensor]  # the keys [B] of each side; −1 stands for no key
    model: Model
    settings: CacheSettings
    seed: int
    tick: Tensor  # []
    is_known: IsKnown | None = None  # tells which candidates may not be cached; None: all may

    def of(self, side: Side) -> tuple[CacheSide, Tensor]:
        """Return the cache of one side, and its keys [B]."""
        return next(
            found for found in zip(self.sides, self.keys, strict=True) if found[0].side is side
        )

    def excluded(self, side: Side, key: Tensor, candidates: Tensor) -> Tensor | None:
        """Mark candidates [keys, C] that may not be cached: repeats in a set, known triples."""
        excluded = repeated(candidates) if self.settings.candidates == "set" else None
        if self.is_known is not None:
            known = self.is_known(side, key.unsqueeze(1), candidates)
            excluded = known if excluded is None else excluded | known
        return excluded


@dataclass(frozen=True)
class Rivals:
    """The false answers that a softmax compares the answers of a batch with.

    The entities cached for a query count once each. The tail is shared by the batch, and each of
    its entities stands for |E|/K entities, unless the entity is cached or the answer.
    """

    tail: Tensor  # [K] different entities
    entities: int
    cache: CacheAccess | None = None
    refreshing: bool = True  # whether the scores of the step choose new rows of the cache

    @property
    def weight(self) -> float:
        return self.entities / len(self.tail)

    def cached(self, side: Side) -> Tensor:
        """Return the cached entities [B, N1] of the queries of one side; N1 may be 0."""
        if self.cache is None:
            return self.tail.new_empty(1, 0)
        side_cache, key = self.cache.of(side)
        return side_cache.ids[key].long()

    def refresh(self, side: Side, cached: Tensor, scores: Tensor, excluded: Tensor) -> None:
        """Keep N1 of the cached entities [B, N1] and the tail, by their scores [B, N1 + K].

        ``excluded`` [B, N1 + K] marks entities of the tail that are cached already. Triples of the
        same key have the same scores, so the order of the writes does not matter.
        """
        if self.cache is None or not self.refreshing:
            return
        settings = self.cache.settings
        side_cache, key = self.cache.of(side)
        candidates = torch.cat([cached, self.tail.expand(len(cached), -1)], dim=1)
        start = random.stream(self.cache.seed, self.cache.tick, random.NOISE[side])
        noise = random.gumbel(random.bits(start, key.unsqueeze(1), candidates))
        how = settings.refresh, scores, settings.n1, noise, settings.temperature
        chosen = candidates.gather(1, select(*how, excluded))
        side_cache.ids[key] = chosen.sort(1).values.int()


Contrast = Negatives | Rivals
"""What the loss of a step compares the triples of a batch with."""
