"""NSCaching (Zhang et al., 2019): negatives from a small cache of high-scoring entities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import (
    HEAD_FRESH,
    HEAD_NOISE,
    TAIL_FRESH,
    TAIL_NOISE,
    CacheAccess,
    CacheSide,
    Kernels,
)
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.choose import repeated
from nscaching.models import Model
from nscaching.samplers.base import SAMPLERS, Sampler

__all__ = ["NSCaching"]

# Fresh candidates and noise of the head side, then of the tail side.
PURPOSES = ((HEAD_FRESH, HEAD_NOISE), (TAIL_FRESH, TAIL_NOISE))

# The start fills the cache for this many keys at once and draws anew, this often, what may not be
# cached; then the keys that have few entities to choose from choose among all.
FILL_ROWS = 16384
FILL_ROUNDS = 8


@SAMPLERS.register("nscaching")
class NSCaching(Sampler):
    """Keeps N1 entities for every (r, t) and every (h, r) of training; draws negatives from them.

    ``cache[side]`` is int32 [keys, N1]; ``fill`` begins it with random entities. A refresh scores
    the cached ones and N2 random draws and keeps N1 of them; it happens once per key and batch,
    however many triples share the key.
    """

    one_side = True
    has_cache = True

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        device: torch.device,
        seed: int,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__(graph, config, device, seed, kernels)
        if config.n1 > self.entities:
            raise UserError(
                f"{flag('n1')} {config.n1} is larger than the number of entities, "
                f"{self.entities:,}; "
                f"give a smaller {flag('n1')}"
            )
        if self.count > config.n1:
            raise UserError(
                f"{flag('negatives')} {self.count} is more than a cache holds, "
                f"{flag('n1')} {config.n1}; "
                f"give fewer, or a larger {flag('n1')}"
            )
        self.refreshing = True
        self.sides: dict[Side, CacheSide] = {}
        for (side, index), purposes in zip(graph.train_index.items(), PURPOSES, strict=True):
            # A key is a query: its anchor and relation say all that scoring needs.
            codes = torch.from_numpy(index.codes).to(device)
            anchor, relation = codes // index.relations, codes % index.relations
            ids = torch.zeros(len(index), config.n1, dtype=torch.int32, device=device)
            self.sides[side] = CacheSide(side, ids, anchor, relation, *purposes)
        self.cache = {side: cache.ids for side, cache in self.sides.items()}

    def begin_epoch(self, epoch: int) -> None:
        """Refresh in the first of every lazy + 1 epochs only."""
        self.refreshing = (epoch - 1) % (self.config.lazy + 1) == 0

    @property
    def in_torch(self) -> bool:
        """Drawing by score is torch's, and so is the search for what is known."""
        return self.config.filter_known or self.config.draw != "uniform"

    def phase(self) -> object:
        """Steps with a refresh do more; with what is known to be left out, none is like another."""
        if self.config.filter_known:
            return None
        return "refresh" if self.refreshing else "draw"

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        """Draw entities from the head cache or the tail cache of each triple (steps 5 to 7)."""
        if self.config.draw == "uniform" and not self.config.filter_known:
            caches = [self.cache[side] for side in Side]
            chance, count = self.head_probability, self.count
            self.drawn = self.kernels.draw(
                batch, chance, self.entities, self.seed, self.tick, caches, count
            )
            return self.drawn
        replace_head = self.choose_head(batch)
        asked = self._access([batch.key(side) for side in Side], model)
        self.drawn = self.kernels.draw_by_score(batch, replace_head, asked, self.count)
        return self.drawn

    def update(self, batch: Batch, model: Model) -> None:
        """Refresh the head cache and the tail cache of the batch (step 8, Algorithm 3)."""
        if not self.refreshing:
            return
        keys = [batch.key(side) for side in Side]
        if self.config.refresh_side == "drawn":
            assert self.drawn.replace_head is not None
            drawn = (self.drawn.replace_head, ~self.drawn.replace_head)
            keys = [key.where(mine, -1) for key, mine in zip(keys, drawn, strict=True)]
        self.kernels.refresh(self._access(keys, model))

    def _access(self, keys: list[Tensor], model: Model) -> CacheAccess:
        is_known = self.is_known if self.config.filter_known else None
        sides = list(self.sides.values())
        return CacheAccess(sides, keys, model, self.config, self.seed, self.tick, is_known)

    def state(self) -> dict[str, Tensor]:
        """Return both caches."""
        return {f"{side.value}_cache": cache for side, cache in self.cache.items()}

    def _excluded(self, side: Side, key: Tensor, candidates: Tensor) -> Tensor | None:
        """Mark the candidates [keys, C] that may not be cached: repeats in a set, known triples."""
        excluded = repeated(candidates) if self.config.candidates == "set" else None
        if self.config.filter_known:
            known = self.is_known(side, key.unsqueeze(1), candidates)
            excluded = known if excluded is None else excluded | known
        return excluded

    def fill(self, progress: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Fill the cache with random entities that may be cached."""
        keys = sum(map(len, self.cache.values()))
        done = 0
        for side, cache in self.cache.items():
            for key in torch.arange(len(cache), device=self.device).split(FILL_ROWS):
                cache[key] = self._some_entities(side, key).int()
                done += len(key)
                progress(done, keys)

    def _some_entities(self, side: Side, key: Tensor) -> Tensor:
        """Draw entities [n, N1] that may be cached for each key [n]."""
        entities = self.random_entities(len(key), self.config.n1)
        excluded = self._excluded(side, key, entities)
        if excluded is None:
            return entities
        rows = excluded.any(1).nonzero().squeeze(1)  # the few that hold what may not be cached
        excluded = excluded[rows]
        for _ in range(FILL_ROUNDS):
            if not len(rows):
                return entities
            fresh = self.random_entities(*entities.shape)[rows]
            entities[rows] = torch.where(excluded, fresh, entities[rows])
            again = self._excluded(side, key[rows], entities[rows])
            assert again is not None
            left = again.any(1)
            rows, excluded = rows[left], again[left]
        if len(rows):
            entities[rows] = self.choose_entities(side, key[rows], self.config.n1)
        return entities
