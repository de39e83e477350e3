"""Caches in strata: a row has slots for each shard of the entities, and a refresh visits one shard.

Between machines that is cheap: the query of a key goes to one machine, which has all candidates.
"""

import torch
from torch import Tensor

from nscaching.kernels import random
from nscaching.kernels.caches import CacheAccess
from nscaching.kernels.choose import select
from nscaching.kernels.shards import Shards


def spread(entity: Tensor, shards: Shards) -> Tensor:
    """Move random entities [n, N1] of rows into the shards that their slots are for."""
    width = entity.shape[1] // shards.ranks
    shard = torch.arange(entity.shape[1], device=entity.device) // width
    return _within(shard, entity, shards)


def _within(shard: Tensor, number: Tensor, shards: Shards, below: int = 0) -> Tensor:
    """Turn numbers 0 … below − 1 into entities of shards; below is |E| if it is left out."""
    starts = torch.tensor([shards.start(s) for s in range(shards.ranks + 1)], device=number.device)
    first, size = starts[shard], starts[shard + 1] - starts[shard]
    return shards.entity_at(first + number * size // (below or shards.entities))


def refresh_strata(asked: CacheAccess) -> None:
    """Refresh as ``Kernels.refresh`` does, each key among its candidates of one shard.

    A key visits shard (step + key) mod S, with all N2 fresh candidates: with fewer, rows would be
    refreshed S times as slowly.
    """
    model, settings = asked.model, asked.settings
    shards = Shards(model.entities, settings.strata, 0)
    kept = settings.n1 // settings.strata
    for cache, every in zip(asked.sides, asked.keys, strict=True):
        key = every[every >= 0].unique()
        number = cache.numbers(key).unsqueeze(1)
        shard = (asked.tick + number) % settings.strata  # [n, 1]
        slot = torch.arange(kept + settings.n2, device=key.device)
        mine = shard * kept + slot[:kept]
        start = random.stream(asked.seed, asked.tick, random.FRESH[cache.side])
        own = torch.zeros_like(number) if settings.shared_candidates else number
        fresh = _within(shard, random.bits(start, own, slot[kept:]), shards, 1 << 32)
        candidates = torch.cat([cache.ids[key].long().gather(1, mine), fresh], dim=1)
        excluded = asked.excluded(cache.side, key, candidates)
        query = cache.side, cache.anchor[key], cache.relation[key]
        scores = model.score_candidates(*query, candidates)
        index = candidates if settings.candidates == "set" else slot
        start = random.stream(asked.seed, asked.tick, random.NOISE[cache.side])
        noise = random.gumbel(random.bits(start, number, index))
        how = settings.refresh, scores, kept, noise, settings.temperature, excluded
        chosen = candidates.gather(1, select(*how).sort(1).values)
        chosen = chosen.sort(1).values if settings.candidates == "set" else chosen
        cache.ids[key.unsqueeze(1), mine] = chosen.int()
