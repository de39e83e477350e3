"""What kernels see of the negative cache: rows to draw from, to refresh, or to compare with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.batch import Negatives
from nscaching.kernels.choose import repeated, select
from nscaching.kernels.nearby import Nearby
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
    number: Tensor | None = None  # [keys], by which random numbers are drawn; None: by the keys

    def numbers(self, key: Tensor) -> Tensor:
        return key if self.number is None else self.number[key]


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

    def numbers(self) -> list[Tensor]:
        """Return the numbers [B] of the keys of each side, by which random numbers are drawn."""
        return [side.numbers(key) for side, key in zip(self.sides, self.keys, strict=True)]

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

    The head of a query is what is cached, and what is near the anchor in the graph: each entity
    counts once. The tail is shared by the batch, and each of its entities stands for |E|/K
    entities, unless the entity is in the head or the answer.
    """

    tail: Tensor  # [K] different entities
    entities: int
    cache: CacheAccess | None = None
    nearby: Nearby | None = None  # with a cache only
    refreshing: bool = True  # whether the scores of the step choose new rows of the cache

    @property
    def weight(self) -> float:
        return self.entities / len(self.tail)

    @property
    def walks(self) -> int:
        """The number of entities in each head that are near the anchor."""
        return self.nearby.count if self.nearby and self.cache else 0

    def cached(self, side: Side) -> Tensor:
        """Return the cached entities [B, N1] of the queries of one side; N1 may be 0."""
        if self.cache is None:
            return self.tail.new_empty(1, 0)
        side_cache, key = self.cache.of(side)
        return side_cache.ids[key].long()

    def near(self, side: Side, anchor: Tensor, cached: Tensor) -> Tensor:
        """Return entities [B, M] near the anchors [B]; M may be 0.

        One that is cached already, or that stands twice, is replaced by the first that is cached.
        """
        if self.cache is None or self.nearby is None:
            return cached[:, :0]
        side_cache, key = self.cache.of(side)
        start = random.stream(self.cache.seed, self.cache.tick, random.WALK[side])
        found = self.nearby.walk(start, anchor, side_cache.numbers(key))
        again = repeated(torch.cat([cached, found], dim=1))[:, cached.shape[1] :]
        return torch.where(again, cached[:, :1], found)

    def refresh(self, side: Side, head: Tensor, scores: Tensor, excluded: Tensor) -> None:
        """Keep N1 of the head [B, H] and the tail, by their scores [B, H + K].

        ``excluded`` [B, H + K] marks entities that stand in the head before. Triples of the same
        key have the same scores, so the order of the writes does not matter.
        """
        if self.cache is None or not self.refreshing:
            return
        settings = self.cache.settings
        side_cache, key = self.cache.of(side)
        candidates = torch.cat([head, self.tail.expand(len(head), -1)], dim=1)
        start = random.stream(self.cache.seed, self.cache.tick, random.NOISE[side])
        number = side_cache.numbers(key).unsqueeze(1)
        noise = random.gumbel(random.bits(start, number, candidates))
        how = settings.refresh, scores, settings.n1, noise, settings.temperature
        chosen = candidates.gather(1, select(*how, excluded))
        side_cache.ids[key] = chosen.sort(1).values.int()


Contrast = Negatives | Rivals
"""What the loss of a step compares the triples of a batch with."""
