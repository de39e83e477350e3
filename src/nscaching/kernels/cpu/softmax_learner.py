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
from nscaching.kernels.codes import FORMS, GIVEN, STRATEGIES
from nscaching.kernels.cpu import rank, softmax
from nscaching.kernels.cpu.learner import Array, NumbaLearner
from nscaching.kernels.cpu.threads import Threads, torch_threads
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.softmax_step import NEGLIGIBLE, Asked, SoftmaxStep, TakeBack
from nscaching.models import Form, Model

# Queries that meet the tail at once, on one thread: products of matrices do not depend on the
# number of threads then.
BLOCK = 256


class NumbaSoftmax(SoftmaxStep, NumbaLearner):
    """Sums the gradients by each entity over places, which are of two kinds.

    The first places have rows ``given``, which are gradients already: the tail's, one for each
    block of queries, then the anchors'. The others are candidates of the queries, whose gradients
    follow from slopes.
    """

    def __init__(self, model: Model, learning: Learning, threads: Threads) -> None:
        super().__init__(model, learning, threads)
        self.where = np.full(model.entities, -1, np.int32)
        self.room: dict[str, Tensor] = {}

    def _room(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return memory for a tensor that is written anew in every step."""
        numbers = math.prod(shape)
        if name not in self.room or self.room[name].numel() < numbers:
            self.room[name] = torch.empty(numbers, dtype=dtype)
        return self.room[name][:numbers].view(shape)

    def ask(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        n, how, tables = len(asked.anchor), (self.kind, asked.of_heads), (self.rows, self.relations)
        ends, query = (asked.anchor, asked.relation), self._room("query", n, self.rows.shape[1])
        self.threads.run(softmax.ask, n, *how, *tables, *ends, query)

        def take_back(by_query: Tensor) -> None:
            kind, of_heads = how
            self.threads.run(
                softmax.ask_back, n, kind, of_heads, float(self.learning.cubes), *tables, *ends,
                by_query, self.given[-n:], self.g_relation,
            )  # fmt: skip
            self.by_relation.append((asked.relation.numpy(), self.g_relation[:n]))

        return query, take_back

    def _make_places(self, asked: Asked, tail: Tensor, parts: int, n1: int) -> int:
        """Make room for the places of a step; return how many are given."""
        n, entities = len(asked.anchor), self.model.entities
        given = parts * len(tail) + n
        places = given + n * (1 + n1)
        self._make_room(n, places + 2 * self.model.relations, min(places, entities))
        self.ids = self._room("ids", places, dtype=torch.int64)
        self.ids[:given] = torch.cat([tail.repeat(parts), asked.anchor])
        self.candidates = self.ids[given:].view(n, 1 + n1)
        self.is_active = self._room("active", places, dtype=torch.bool)
        self.is_active[:given] = True
        self.by_candidate = self._room("slopes", n, 1 + n1)
        self.given = self._room("given", given, self.rows.shape[1])
        if self.kind == GIVEN:  # compiled loops write what torch adds
            self.given[-n:] = 0
        self.by_relation: list[tuple[Array, Array]] = []
        return given

    def contrast(
        self, asked: Asked, query: Tensor, rivals: Rivals, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        (n, size), tail, count = query.shape, rivals.tail, len(rivals.tail)
        form, metric, cache = self.model.form, self.model.metric, rivals.cache
        blocks = [*pairwise([*range(0, n, BLOCK), n])]
        caches: list[Array] = [np.empty((0, 0), np.int32)] * 2
        key = asked.answer  # of no use, but there has to be one
        if cache is not None:
            caches, key = [side.ids.numpy() for side in cache.sides], torch.cat([*cache.keys])
        n1 = caches[0].shape[1]

        given = self._make_places(asked, tail, len(blocks) if form is Form.DOT else 1, n1)
        self.queries = query
        by_query, losses = self._room("by_query", n, size), torch.empty(n)
        fresh = self._room("fresh", n, n1, dtype=torch.int32)
        slopes, rows = self._room("tail_slopes", n, count), self.vectors["entity"][tail]
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
                *caches, key, n // 2, query, self.rows, tail, self.where, slopes, refreshing, *how,
                self.candidates, self.by_candidate, self.is_active[given:].view(n, 1 + n1), losses,
                by_query, fresh,
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
        starts = (random.stream(cache.seed, cache.tick, random.NOISE[side]) for side in Side)
        of_heads, of_tails = (np.uint32(start.item()) for start in starts)
        how = cache.settings
        return STRATEGIES[how.refresh], float(how.temperature), of_heads, of_tails

    def add_rows(self, table: str, ids: Tensor, gradients: Tensor) -> None:
        if table == "entity":  # the anchors, whose places are the last of the given
            self.given[-len(ids) :] += gradients
        else:
            self.by_relation.append((ids.numpy(), gradients.numpy()))

    def move(self, n: int, loss: Tensor, teaching: Tensor, sums: Tensor) -> None:
        self.loss[:n], self.teaching[:n] = loss.numpy(), teaching.numpy()
        group = self._group(self.ids.numpy()[:, None], self.is_active.numpy())
        places = int(group[2][group[0]])
        self.threads.run(
            softmax.by_entity, places, FORMS[self.model.form], self.model.metric, self.rows,
            self.queries, self.given, self.by_candidate, *group, self.g_entity,
        )  # fmt: skip
        each = np.arange(group[0] + 1)  # the u-th entity's gradient is the u-th
        self.steps += 1
        squares = self._update("entity", (group[0], group[1], each, each), self.g_entity, n)
        ids, gradients = map(np.concatenate, zip(*self.by_relation, strict=True))
        group = self._group(ids[:, None], np.ones(len(ids), np.bool_))
        self.squares_sum = squares + self._update("relation", group, gradients, n)
        self._count(n, sums)
