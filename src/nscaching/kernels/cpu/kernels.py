"""The fast path on CPUs: loops compiled by Numba, on threads that sleep when there is no work."""

import numpy as np
import torch
from numba.core import event
from torch import Tensor

from nscaching.kernels import random
from nscaching.kernels.codes import FORMS, STRATEGIES
from nscaching.kernels.compiled import is_compiled
from nscaching.kernels.cpu import rank as cpu_rank
from nscaching.kernels.cpu import refresh as cpu_refresh
from nscaching.kernels.cpu.learner import NO_ROWS, NONE, Array, NumbaLearner
from nscaching.kernels.cpu.threads import Threads
from nscaching.kernels.distances import with_gradient
from nscaching.kernels.learner import Learner, Scorer
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import CacheAccess, Kernels, Known
from nscaching.models import Form, Model
from nscaching.settings import CacheSettings

COMPILING = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", COMPILING)  # type: ignore[no-untyped-call]


class NumbaKernels(Kernels):
    """Compiled twins of the hot operations; operations without a twin run on the reference path."""

    name = "numba"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self.threads = Threads()
        self._learner: NumbaLearner | None = None
        self._seen: Array = np.empty((0, 0), np.int64)
        self._mark = 1

    def compile_seconds(self) -> float:
        """Return the seconds that Numba has compiled; code from the disk cache takes none."""
        return COMPILING.duration if COMPILING.done else 0.0

    def learner(self, model: Model, learning: Learning, count: int = 1) -> Learner:
        """Return a compiled learner where there is one."""
        if not (is_compiled(model) and learning.many_compiled):
            return super().learner(model, learning, count)
        self._learner = NumbaLearner(model, learning, self.threads)
        return self._learner

    def scorer(self, model: Model, learning: Learning) -> Scorer:
        """Return a compiled scorer where there is one."""
        if not is_compiled(model):
            return super().scorer(model, learning)
        return NumbaLearner(model, learning, self.threads)

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        """Refresh the keys of each side in place, one pass per key."""
        model, settings, seed, tick = asked.model, asked.settings, asked.seed, asked.tick
        if model.form not in FORMS or asked.is_known is not None:
            super().refresh(asked)
            return
        learner = None
        if self._learner is not None and self._learner.model is model:
            learner = self._learner.current()
        rows, shift = self._rows(model, learner, settings)
        seen = self._seen_by_each_thread(model.entities)
        for cache, every in zip(asked.sides, asked.keys, strict=True):
            key = every[every >= 0].unique()
            anchor, relation = cache.anchor[key], cache.relation[key]
            if learner is not None:
                query = learner.query(cache.side, anchor, relation)
            else:
                query = model.query(cache.side, anchor, relation).numpy()
            direction = NO_ROWS
            if model.form is Form.SHIFTED:
                direction = model.direction(relation).numpy()
            scale = np.full(len(key), 1 / np.float32(settings.temperature), np.float32)
            if (weight := model.weight_of(relation)) is not None:
                scale *= weight.numpy()
            starts = [
                np.uint32(random.stream(seed, tick, purpose).item())
                for purpose in (cache.fresh, cache.noise)
            ]
            arguments = (
                cache.ids.numpy(), key.numpy(), query, rows, FORMS[model.form], model.metric, shift,
                direction, model.unit_projection, settings.n2, *starts, settings.shared_candidates,
                STRATEGIES[settings.refresh], scale, settings.candidates == "set", self._mark,
            )  # fmt: skip
            self._mark += len(key)  # no mark is used twice, so none need be cleared
            each = [(*arguments, mine) for mine in seen]
            self.threads.run_each(cpu_refresh.refresh, len(key), each)

    def _rows(
        self, model: Model, learner: NumbaLearner | None, settings: CacheSettings
    ) -> tuple[Array, Array]:
        """Return the entity rows [|E|, D] and the shifts of the entities, if they have shifts."""
        dtype = self.rounding(settings)
        if learner is not None and dtype is None:
            return learner.rows, learner.shift
        shift = (
            model.entity_shift(torch.arange(model.entities)) if model.form is Form.SHIFTED else None
        )
        return model.table(dtype).numpy(), NONE if shift is None else shift.numpy()

    def _seen_by_each_thread(self, entities: int) -> Array:
        if self._seen.shape[1] != entities:
            self._seen = np.zeros((self.threads.count, entities), np.int64)
        return self._seen

    def distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return ‖q − e‖ [n, E] of all queries [n, D] and rows [E, D]."""
        if query.dtype != torch.float32:
            return super().distances(query, rows, norm)
        return with_gradient(self, query, rows, norm)

    def pair_distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return the distances with no gradient."""
        out = torch.empty(len(query), len(rows))
        arrays = query.detach().contiguous().numpy(), rows.detach().contiguous().numpy()
        self.threads.run(cpu_rank.distances, len(query), *arrays, norm, out.numpy())
        return out

    def slopes(self, weight: Tensor, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return Σₑ weight[n, E]·∂‖q − e‖/∂q [n, D]; in norm 2 the weight is divided by ‖q − e‖."""
        out = torch.zeros_like(query)
        arrays = (part.detach().contiguous().numpy() for part in (weight, query, rows))
        self.threads.run(cpu_rank.slopes, len(query), *arrays, norm, out.numpy())
        return out

    def count(self, scores: Tensor, answer: Tensor, known: Known | None) -> Tensor:
        """Count in each row of scores [n, E]: above the answer [n], equal to it, non-finite."""
        if scores.dtype != torch.float32:
            return super().count(scores, answer, known)
        out = torch.empty(3, len(scores), dtype=torch.int64)
        none = np.empty(0, np.int64)
        runs: tuple[Array, ...] = (none, none, np.empty(0, np.int32))
        if known is not None:
            runs = (known.start.numpy(), known.end.numpy(), known.answers.numpy())
        self.threads.run(
            cpu_rank.count, len(scores), scores.detach().numpy(), answer.numpy(),
            known is not None, *runs, out.numpy(),
        )  # fmt: skip
        return out
