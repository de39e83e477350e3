"""The negative cache of one rank: the rows of the queries whose anchors the rank owns."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Side
from nscaching.kernels import Batch, CacheAccess, CacheSide, Negatives
from nscaching.kernels.shards import Shards
from nscaching.models import Model
from nscaching.samplers.draws import Draws, Progress
from nscaching.samplers.start import FILL_ROWS, random_rows
from nscaching.settings import CacheSettings
from nscaching.sharded.world import World


class CacheShard:
    """Draws and refreshes as ``NegativeCache`` does, by the keys of all ranks."""

    def __init__(
        self,
        index: Mapping[Side, AnswerIndex],
        relations: int,
        settings: CacheSettings,
        draws: Draws,
        shards: Shards,
        in_order: bool,
        progress: Progress,
    ) -> None:
        """Fill the rows as one process fills them, ``in_order`` if they are to be searched."""
        self.settings, self.draws, self.shards = settings, draws, shards
        self.sides: dict[Side, CacheSide] = {}
        self.found: tuple[Batch | None, list[Tensor]] = (None, [])  # the latest rows
        total, done = sum(map(len, index.values())), 0
        for side in Side:
            anchor, relation = (
                torch.from_numpy(ids).to(draws.device)
                for ids in np.divmod(index[side].codes, relations)
            )
            (key,) = shards.mine(anchor).nonzero(as_tuple=True)  # ascending
            ids = key.new_empty(len(key), settings.n1, dtype=torch.int32)
            self.sides[side] = CacheSide(side, ids, anchor[key], relation[key], key)
            for first in range(0, len(anchor), FILL_ROWS):
                # Random numbers of a generator come one after the other: every rank draws all.
                every = torch.arange(
                    first, min(first + FILL_ROWS, len(anchor)), device=draws.device
                )
                made = random_rows(side, every, settings.n1, draws, self.access([], None))
                low, high = torch.searchsorted(key, torch.stack([every[0], every[-1] + 1])).tolist()
                made = made[key[low:high] - first]
                ids[low:high] = made.sort(1).values if in_order else made
                done += len(every)
                progress(done, total)

    def rows(self, batch: Batch) -> list[Tensor]:
        """Return the rows of both keys of each triple; −1 for the keys of another rank."""
        if self.found[0] is not batch:
            self.found = batch, [self.rows_of(side, batch.key(side)) for side in Side]
        return self.found[1]

    def rows_of(self, side: Side, key: Tensor) -> Tensor:
        """Return the rows of keys of all ranks; −1 for a key of another rank."""
        own = self.sides[side].number
        assert own is not None
        if not len(own):
            return torch.full_like(key, -1)
        row = torch.searchsorted(own, key).clamp_(max=len(own) - 1)
        return torch.where(own[row] == key, row, -1)

    def draw(self, batch: Batch, count: int) -> Negatives:
        """Draw negatives for a batch; those of other ranks' queries are of no use."""
        head, tail = (row.clamp(min=0) for row in self.rows(batch))
        there = dataclasses.replace(batch, head_key=head, tail_key=tail)
        caches = [self.sides[side].ids for side in Side]
        caches = [ids if len(ids) else ids.new_zeros(1, self.settings.n1) for ids in caches]
        return self.draws.draw(there, caches, count)

    def due(self, batch: Batch, model: Model, drawn: Tensor | None) -> CacheAccess:
        """Return the own rows of a batch to refresh; with ``drawn`` [B] those drawn from alone."""
        keys = self.rows(batch)
        if drawn is not None:
            marks = drawn, ~drawn
            keys = [row.where(mark, -1) for row, mark in zip(keys, marks, strict=True)]
        return self.access(keys, model)

    def access(self, keys: list[Tensor], model: Model | None) -> CacheAccess:
        draws, sides = self.draws, [*self.sides.values()]
        return CacheAccess(sides, keys, model, self.settings, draws.seed, draws.tick)  # type: ignore[arg-type]

    def blocks(self) -> dict[str, Tensor]:
        """Return the cached entities of each block of anchors, by names all ranks agree on."""
        return {
            f"{side.value}_cache.{block}": cache.ids[rows]
            for side, cache in self.sides.items()
            for block, rows in self._rows_by_block(cache)
        }

    def restore(self, blocks: Mapping[str, Tensor]) -> None:
        for side, cache in self.sides.items():
            for block, rows in self._rows_by_block(cache):
                cache.ids[rows] = blocks[f"{side.value}_cache.{block}"].to(cache.ids.device)

    def gather(self, world: World) -> dict[str, Tensor]:
        """Return the rows of all keys on the leading rank; elsewhere an empty mapping."""
        whole: dict[str, Tensor] = {}
        for side, cache in self.sides.items():
            assert cache.number is not None
            sizes = world.gather(len(cache.ids))
            rows = cache.ids.new_empty(sum(sizes), self.settings.n1, device="cpu")
            for rank, size in enumerate(sizes):
                mine = rank == world.rank
                key = world.bring(
                    cache.number if mine else None, cache.number.new_empty(size), rank
                )
                ids = world.bring(
                    cache.ids if mine else None, cache.ids.new_empty(size, self.settings.n1), rank
                )
                if key is not None and ids is not None:
                    rows[key.cpu()] = ids.cpu()
            if world.leads:
                whole[f"{side.value}_cache"] = rows
        return whole

    def _rows_by_block(self, cache: CacheSide) -> list[tuple[int, Tensor]]:
        block = cache.anchor % self.shards.blocks
        order = block.argsort(stable=True)
        own = self.shards.own_blocks
        sizes = (block - own.start).bincount(minlength=len(own)).tolist()
        return list(zip(own, order.split(sizes), strict=True))
