"""The fast path on CPUs: loops compiled by Numba, on threads that sleep when there is no work."""

from collections.abc import Sequence

import numpy as np
import torch
from numba.core import event
from torch import Tensor

from nscaching.kernels import random
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import CacheAccess
from nscaching.kernels.codes import FORMS, STRATEGIES
from nscaching.kernels.compiled import CompiledKernels, has_queries, shift_of
from nscaching.kernels.cpu import draw as cpu_draw
from nscaching.kernels.cpu import order as cpu_order
from nscaching.kernels.cpu import rank as cpu_rank
from nscaching.kernels.cpu import refresh as cpu_refresh
from nscaching.kernels.cpu import softmax as cpu_softmax
from nscaching.kernels.cpu.learner import NO_ROWS, NONE, Array, NumbaLearner
from nscaching.kernels.cpu.query_learner import NumbaQueries
from nscaching.kernels.cpu.softmax_learner import NumbaSoftmax
from nscaching.kernels.cpu.threads import Threads
from nscaching.kernels.optimizers import Learning
from nscaching.models import Form, Model

NO_IDS = np.empty((0, 0), np.int32)

COMPILING = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", COMPILING)  # type: ignore[no-untyped-call]


class NumbaKernels(CompiledKernels[NumbaLearner]):
    name = "numba"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self.threads = Threads()
        self._seen: Array = np.empty((0, 0), np.int64)
        self._mark = 1

    def compile_seconds(self) -> float:
        return COMPILING.duration if COMPILING.done else 0.0

    def new_learner(self, model: Model, learning: Learning) -> NumbaLearner:
        kind = NumbaQueries if has_queries(model) else NumbaLearner
        return kind(model, learning, self.threads)

    def new_softmax_learner(self, model: Model, learning: Learning) -> NumbaLearner:
        return NumbaSoftmax(model, learning, self.threads)

    def take(self, columns: Tensor, seed: int, taken: Tensor, size: int) -> Tensor:
        n, sofar = columns.shape[1], int(taken)
        start = np.uint32(random.stream_start(seed, sofar // n, random.ORDER))
        out = torch.empty(1 + len(columns), size, dtype=torch.int64)
        arguments = columns, start, sofar % n, random.grid_width(n), out
        self.threads.run(cpu_order.take, size, *arguments, numbers=8 * size)
        taken += size
        return out

    def sample(self, below: int, count: int, seed: int, number: Tensor) -> Tensor:
        starts = random.stream(seed, number, random.RIVAL).numpy().astype(np.uint32)
        out = torch.empty(len(number), count, dtype=torch.int64)
        self.threads.run(
            cpu_order.sample, len(number), starts, below, random.grid_width(below), out
        )
        return out

    def tail(self, entities: int, count: int, seed: int, tick: Tensor) -> Tensor:
        if count >= entities:
            return super().tail(entities, count, seed, tick)
        order, part = divmod(int(tick), entities // count)
        start = np.uint32(random.stream(seed, torch.tensor(order), random.TAIL).item())
        out = torch.empty(count, dtype=torch.int64)
        self.threads.run(cpu_softmax.tail, count, start, part * count, entities, out)
        return out

    def draw(
        self,
        batch: Batch,
        chance: Tensor,
        entities: int,
        seed: int,
        tick: Tensor,
        caches: Sequence[Tensor] = (),
        count: int = 1,
    ) -> Negatives:
        if caches and count > 1:  # different slots
            return super().draw(batch, chance, entities, seed, tick, caches, count)
        n, purpose = len(batch), random.SLOT if caches else random.ENTITY
        starts = (
            np.uint32(random.stream_start(seed, int(tick), each)) for each in (random.COIN, purpose)
        )
        rows = tuple(ids.numpy() for ids in caches) or (NO_IDS, NO_IDS)
        keys = batch.head_key.numpy(), batch.tail_key.numpy()
        head, tail = torch.empty(2, n, count, dtype=torch.int64)
        replace_head = torch.empty(n, dtype=torch.bool)
        self.threads.run(
            cpu_draw.draw, n, chance, *starts, entities, rows, keys, batch.head, batch.relation,
            batch.tail, replace_head, head, tail, numbers=n * count,
        )  # fmt: skip
        return Negatives(head, tail, replace_head)

    def refresh_compiled(self, asked: CacheAccess, learner: NumbaLearner | None) -> None:
        model, settings, rounding = asked.model, asked.settings, self.rounding(asked.settings)
        rows: Tensor | Array
        shift: Tensor | Array | None
        if learner is not None and rounding is None:
            rows, shift = learner.rows, learner.shift
        else:
            rows, shift = model.table(rounding), shift_of(model)
        if self._seen.shape[1] != model.entities:
            self._seen = np.zeros((self.threads.count, model.entities), np.int64)
        for cache, every in zip(asked.sides, asked.keys, strict=True):
            key = every[every >= 0].unique()
            anchor, relation = cache.anchor[key], cache.relation[key]
            asks = model.query if learner is None else learner.query
            shifted = model.form is Form.SHIFTED
            scale = np.full(len(key), 1 / np.float32(settings.temperature), np.float32)
            if (weight := model.weight_of(relation)) is not None:
                scale *= weight.numpy()
            starts = [
                np.uint32(random.stream(asked.seed, asked.tick, purpose).item())
                for purpose in (random.FRESH[cache.side], random.NOISE[cache.side])
            ]
            arguments = (
                cache.ids, key, cache.numbers(key), asks(cache.side, anchor, relation), rows,
                FORMS[model.form], model.metric, NONE if shift is None else shift,
                model.direction(relation) if shifted else NO_ROWS, model.unit_projection,
                settings.n2, *starts, settings.shared_candidates, STRATEGIES[settings.refresh],
                scale, settings.candidates == "set", self._mark,
            )  # fmt: skip
            self._mark += len(key)  # no mark is used twice, so none need be cleared
            self.threads.run(cpu_refresh.refresh, len(key), *arguments, each=list(self._seen))

    def pair_distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        out = torch.empty(len(query), len(rows))
        tables = query.detach().contiguous(), rows.detach().contiguous()
        self.threads.run(cpu_rank.distances, len(query), *tables, norm, out)
        return out

    def slopes(self, weight: Tensor, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        out = torch.zeros_like(query)
        tables = (part.detach().contiguous() for part in (weight, query, rows))
        self.threads.run(cpu_rank.slopes, len(query), *tables, norm, out)
        return out

    def count_to(
        self, out: Tensor, scores: Tensor, answer: Tensor, target: Tensor, known: Known, first: int
    ) -> None:
        ranges = known.start, known.end, known.answers
        self.threads.run(cpu_rank.count, len(scores), scores, answer, target, *ranges, first, out)
