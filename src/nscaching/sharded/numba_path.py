"""Refreshes in shards by compiled loops: candidates here, their scores from all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels import CacheAccess, CacheSide, Learning, random
from nscaching.kernels.codes import STRATEGIES
from nscaching.kernels.cpu import refresh as loops
from nscaching.kernels.cpu.kernels import NumbaKernels
from nscaching.kernels.cpu.learner import Array
from nscaching.kernels.learner import Learner
from nscaching.sharded.numba_learner import NumbaShardLearner
from nscaching.sharded.path import Path
from nscaching.sharded.visit import Visit


@dataclass
class NumbaPath(Path):
    """Compiled loops, for models whose queries these know."""

    kernels: NumbaKernels
    marks: Array = field(init=False)  # the latest mark of each entity, for each thread
    mark: int = 1

    name = "numba"

    def __post_init__(self) -> None:
        threads = self.kernels.threads.count
        self.marks = np.zeros((threads, self.meeting.shards.entities), np.int64)

    def learner(self, learning: Learning) -> Learner:
        self.current = NumbaShardLearner(self.meeting, learning, self.kernels.threads).current
        return self.current()

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        if asked.settings.strata > 1:
            super().refresh(asked)
            return
        learner, model, shards = self.current(), self.meeting.model, self.meeting.shards
        run, settings = self.kernels.threads.run, asked.settings
        distinct, entities = settings.candidates == "set", shards.entities
        sides: list[tuple[CacheSide, tuple[Tensor, ...]]] = []
        queries, scales = [], []
        for cache, every in zip(asked.sides, asked.keys, strict=True):
            key = every[every >= 0].unique()
            relation = cache.relation[key]
            queries.append(learner.query(cache.side, shards.place(cache.anchor[key]), relation))
            scales.append(np.full(len(key), 1 / np.float32(settings.temperature), np.float32))
            if (weight := model.weight_of(relation)) is not None:
                scales[-1] *= weight.numpy()
            sides.append((cache, (cache.ids, key, cache.numbers(key))))
        bounds = np.cumsum([0, *map(len, queries)])
        ids = np.empty((bounds[-1], settings.n1 + settings.n2), np.int32)
        counts = np.empty(len(ids), np.int64)
        parts = [slice(*bounds[k : k + 2]) for k in range(len(sides))]
        for (cache, which), some in zip(sides, parts, strict=True):
            start = _start(asked, random.FRESH[cache.side])
            how: tuple[object, ...] = start, settings.shared_candidates, entities, distinct
            made = ids[some], counts[some], self.mark
            run(loops.candidates, len(which[1]), *which, *how, *made, each=list(self.marks))
            self.mark += len(which[1])  # no mark is used twice, so none need be cleared
        values = np.empty(ids.shape, np.float32)
        if settings.refresh != "uniform":
            query = torch.from_numpy(np.concatenate(queries))
            given = learner.threads, learner.rows, query, ids, counts
            values = Visit.begin(self.meeting, *given).scores()
        for (cache, which), some, scale in zip(sides, parts, scales, strict=True):
            start = _start(asked, random.NOISE[cache.side])
            how = start, STRATEGIES[settings.refresh], scale, distinct
            run(loops.choices, len(which[1]), *which, *how, ids[some], values[some], counts[some])


def _start(asked: CacheAccess, purpose: int) -> np.uint32:
    return np.uint32(random.stream_start(asked.seed, int(asked.tick), purpose))
