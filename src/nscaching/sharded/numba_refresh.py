"""A refresh in shards by compiled loops, in two parts: candidates, and choices by their scores."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels import CacheAccess, CacheSide, random
from nscaching.kernels.codes import STRATEGIES
from nscaching.kernels.cpu import refresh as loops
from nscaching.kernels.cpu.learner import Array, NumbaLearner
from nscaching.kernels.shards import Shards
from nscaching.sharded.visit import Visit


class Marks:
    """Marks of entities [|E|] that are in a set already, for each thread; none is used twice."""

    def __init__(self, threads: int, entities: int) -> None:
        self.seen, self.next = np.zeros((threads, entities), np.int64), 1

    def take(self, count: int) -> int:
        self.next += count
        return self.next - count


class ShardRefresh:
    """The refresh of some rows of this rank; the candidates of both sides make one visit."""

    def __init__(
        self, asked: CacheAccess, learner: NumbaLearner, shards: Shards, marks: Marks
    ) -> None:
        self.asked, self.run, settings = asked, learner.threads.run, asked.settings
        self.distinct = settings.candidates == "set"
        self.sides: list[tuple[CacheSide, tuple[Tensor, ...], Array]] = []
        queries = []
        for cache, every in zip(asked.sides, asked.keys, strict=True):
            key = every[every >= 0].unique()
            relation = cache.relation[key]
            queries.append(learner.query(cache.side, shards.place(cache.anchor[key]), relation))
            scale = np.full(len(key), 1 / np.float32(settings.temperature), np.float32)
            if (weight := learner.model.weight_of(relation)) is not None:
                scale *= weight.numpy()
            self.sides.append((cache, (cache.ids, key, cache.numbers(key)), scale))
        bounds = np.cumsum([0, *map(len, queries)])
        self.parts = [slice(*bounds[k : k + 2]) for k in range(len(queries))]
        ids = np.empty((bounds[-1], settings.n1 + settings.n2), np.int32)
        counts = np.empty(len(ids), np.int64)
        for (cache, which, scale), some in zip(self.sides, self.parts, strict=True):
            how = settings.shared_candidates, shards.entities, self.distinct
            made = self._start(random.FRESH[cache.side]), *how, ids[some], counts[some]
            mark = marks.take(len(scale))
            self.run(loops.candidates, len(scale), *which, *made, mark, each=list(marks.seen))
        self.visit = Visit(torch.from_numpy(np.concatenate(queries)), ids, counts)

    @property
    def by_score(self) -> bool:
        return self.asked.settings.refresh != "uniform"

    def choose(self, values: Array) -> None:
        """Choose the new rows by the scores of the candidates, which are overwritten."""
        how, tables = STRATEGIES[self.asked.settings.refresh], (self.visit.ids, values)
        for (cache, which, scale), some in zip(self.sides, self.parts, strict=True):
            given = self._start(random.NOISE[cache.side]), how, scale, self.distinct
            made = *(table[some] for table in tables), self.visit.counts[some]
            self.run(loops.choices, len(scale), *which, *given, *made)

    def _start(self, purpose: int) -> np.uint32:
        return np.uint32(random.stream_start(self.asked.seed, int(self.asked.tick), purpose))
