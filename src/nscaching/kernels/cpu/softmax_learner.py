"""Steps of the cached softmax on CPUs."""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import CacheAccess, Rivals
from nscaching.kernels.codes import FORMS, STRATEGIES
from nscaching.kernels.cpu import rank, softmax
from nscaching.kernels.cpu.learner import Array
from nscaching.kernels.cpu.query_learner import NumbaQueries
from nscaching.kernels.cpu.threads import Threads, torch_threads
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.queries import Asked
from nscaching.kernels.softmax_step import NEGLIGIBLE, SoftmaxStep
from nscaching.models import Form, Model

# Queries that meet the tail at once, on one thread: products of matrices do not depend on the
# number of threads then.
BLOCK = 256


class NumbaSoftmax(SoftmaxStep, NumbaQueries):
    """Given are the gradients of the tail, one for each block of queries, and of the anchors."""

    def __init__(self, model: Model, learning: Learning, threads: Threads) -> None:
        super().__init__(model, learning, threads)
        self.where = np.full(model.entities, -1, np.int32)

    def contrast(
        self, asked: Asked, query: Tensor, rivals: Rivals, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        (n, size), tail, count = query.shape, rivals.tail, len(rivals.tail)
        form, metric, cache = self.model.form, self.model.metric, rivals.cache
        blocks = [*pairwise([*range(0, n, BLOCK), n])]
        caches: list[Array] = [np.empty((0, 0), np.int32)] * 2
        key = number = asked.answer  # of no use, but there has to be one
        if cache is not None:
            caches, key = [side.ids.numpy() for side in cache.sides], torch.cat([*cache.keys])
            number = torch.cat(cache.numbers())
        n1 = caches[0].shape[1]
        graph, walk = [np.empty(0, np.int32)] * 4, (np.uint32(), np.uint32())
        if cache is not None and rivals.nearby is not None:
            graph = [part.numpy() for part in rivals.nearby.graph]
            walk = starts(cache, random.WALK)

        parts = len(blocks) if form is Form.DOT else 1
        self.make_places(torch.cat([tail.repeat(parts), asked.anchor]), n, 1 + n1 + rivals.walks)
        self.queries = query
        by_query, losses = self.own_room("by_query", n, size), torch.empty(n)
        fresh = self.own_room("fresh", n, n1, dtype=torch.int32)
        slopes, rows = self.own_room("tail_slopes", n, count), self.vectors["entity"][tail]
        weights = torch.full((n,), float(self.learning.scale))
        if asked.weight is not None:
            weights *= asked.weight
        self.where[tail.numpy()] = np.arange(count, dtype=np.int32)
        refreshing = cache is not None and rivals.refreshing
        how = self._how(cache) if cache is not None and refreshing else (1, 1.0, *[np.uint32()] * 2)
        arguments = [
            part.numpy() if isinstance(part, Tensor) else part
            for part in (
                FORMS[form], metric, weights, math.log(rivals.weight), NEGLIGIBLE, asked.answer,
                asked.anchor, *caches, key, number, n // 2, *graph, *walk, query, self.rows, tail,
                self.where, slopes, refreshing, *how, self.candidates, self.by_candidate,
                self.candidate_active, losses, by_query, fresh,
            )
        ]  # fmt: skip
        met = slopes.numpy(), query.numpy(), rows.numpy()

        def meet(begin: int, end: int) -> None:
            torch.set_num_threads(1)  # of this thread
            for block in range(begin, end):
                bounds = first, last = blocks[block]
                q, by_q, s = query[first:last], by_query[first:last], slopes[first:last]
                if form is Form.DOT:
                    torch.mm(q, rows.T, out=s)
                    softmax.meet(*bounds, *arguments)
                    by_q.addmm_(s, rows)
                    torch.mm(s.T, q, out=self.given[block * count : (block + 1) * count])
                else:
                    rank.distances(*bounds, *met[1:], metric, met[0])
                    softmax.meet(*bounds, *arguments)
                    rank.slopes(*bounds, *met, metric, by_query.numpy())

        with torch_threads(1):
            self.threads.run(meet, len(blocks))
        self.where[tail.numpy()] = -1
        if form is not Form.DOT:
            by_tail = self.given[:count].zero_()
            by_place = slopes.T.contiguous(), rows, query
            self.threads.run(rank.slopes, count, *by_place, metric, by_tail)
        if cache is not None and refreshing:
            for ids, keys, part in zip(caches, cache.keys, fresh.chunk(2), strict=True):
                softmax.store(part.numpy(), keys.numpy(), ids)
        return losses, by_query

    def _how(self, cache: CacheAccess) -> tuple[int, float, np.uint32, np.uint32]:
        """Return strategy and temperature of a refresh, and the starts of each side's noise."""
        how = cache.settings
        return STRATEGIES[how.refresh], float(how.temperature), *starts(cache, random.NOISE)

    def move(self, n: int, loss: Tensor, teaching: Tensor, sums: Tensor) -> None:
        self.loss[:n], self.teaching[:n] = loss.numpy(), teaching.numpy()
        self.move_all(n)
        self._count(n, sums)


def starts(cache: CacheAccess, purpose: dict[Side, int]) -> tuple[np.uint32, np.uint32]:
    """Return the starts of the random numbers of heads and of tails."""
    made = (random.stream(cache.seed, cache.tick, purpose[side]) for side in Side)
    of_heads, of_tails = (np.uint32(start.item()) for start in made)
    return of_heads, of_tails
