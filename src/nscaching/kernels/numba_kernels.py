"""The fast path on CPUs: loops compiled by Numba, on threads that sleep when there is no work."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.batches import Batch, Negatives
from nscaching.checkpoint import State, join, part
from nscaching.config import TrainConfig
from nscaching.graph import Side
from nscaching.kernels import random
from nscaching.kernels._base import CacheAccess, Kernels, Known
from nscaching.kernels.codes import DIRECTIONS, FORMS, KINDS, STRATEGIES, TRANSD, UNIT
from nscaching.kernels.cpu import adam as cpu_adam
from nscaching.kernels.cpu import rank as cpu_rank
from nscaching.kernels.cpu import refresh as cpu_refresh
from nscaching.kernels.cpu import step as cpu_step
from nscaching.kernels.distances import with_gradient
from nscaching.kernels.learner import BETAS, Learner, Learning
from nscaching.kernels.threads import Threads
from nscaching.models import Form, Model
from nscaching.objectives import LOGISTIC_ZERO

__all__ = ["NumbaKernels", "NumbaLearner"]

Array = npt.NDArray[Any]

NONE = np.empty(0, np.float32)
NO_ROWS = np.empty((0, 0), np.float32)


class NumbaLearner(Learner):
    """Gradient steps of the models whose gradients are compiled; keeps their rows ready."""

    def __init__(self, model: Model, learning: Learning, threads: Threads) -> None:
        self.model, self.learning, self.threads = model, learning, threads
        self.kind, self.norm = KINDS[type(model)], model.norm
        self.steps = 0
        self.tables = {name: table.detach().numpy() for name, table in model.named_parameters()}
        self.means = {name: np.zeros_like(table) for name, table in self.tables.items()}
        self.squares = {name: np.zeros_like(table) for name, table in self.tables.items()}
        self.moved = np.zeros(model.entities, np.uint8)
        self.unit, self.direction = UNIT.get(self.kind, ()), DIRECTIONS.get(self.kind, "")
        self.ready = {
            name: np.empty_like(table) if name in self.unit else table
            for name, table in self.tables.items()
        }
        self.rows, self.relations = self.ready["entity"], self.ready["relation"]
        self.directions = self.ready[self.direction] if self.direction else NO_ROWS
        has_shift = self.kind == TRANSD
        self.shift = np.empty(model.entities, np.float32) if has_shift else NONE
        self.reload()
        self._room(0)

    def reload(self) -> None:
        """Make all rows ready anew."""
        for name in self.unit:
            self.ready[name][:] = F.normalize(torch.from_numpy(self.tables[name])).numpy()
        if self.shift.size:
            self.shift[:] = (self.rows * self.tables["entity_projection"]).sum(1)

    def checkpoint(self) -> State:
        """Return means, squares and steps; and the rows that are ready.

        Made anew, these would not be the same to the last bit.
        """
        parts = {"mean": self.means, "square": self.squares}
        parts["ready"] = {name: self.ready[name] for name in self.unit}
        parts["rows"] = {"moved": self.moved, "shift": self.shift}
        tensors = {
            kind: {name: torch.from_numpy(rows) for name, rows in tables.items()}
            for kind, tables in parts.items()
        }
        return join(**tensors, steps=dict.fromkeys(self.tables, self.steps))

    def restore(self, state: State) -> None:
        """Take what a checkpoint holds; another kind of learner leaves no rows that are ready."""
        for kind, tables in (("mean", self.means), ("square", self.squares)):
            for name, table in tables.items():
                table[:] = state[f"{kind}.{name}"].numpy()
        self.steps = max(part(state, "steps").values())
        self.moved[:] = 1
        self.reload()
        if "rows.moved" in state:
            self.moved[:] = state["rows.moved"].numpy()
            self.shift[:] = state["rows.shift"].numpy()
            for name in self.unit:
                self.ready[name][:] = state[f"ready.{name}"].numpy()

    def _room(self, batch: int) -> None:
        """Make room for the gradients of a batch."""
        size, relation = self.rows.shape[1], self.relations.shape[1]
        self.g_entity = np.empty((batch, 3, size), np.float32)
        self.g_shift = np.empty((batch if self.shift.size else 0, 3), np.float32)
        self.g_relation = np.empty((batch, relation), np.float32)
        self.g_direction = np.empty((batch if self.direction else 0, relation), np.float32)
        self.active = np.empty(batch, np.bool_)
        self.loss, self.teaching = np.empty(batch, np.float32), np.empty(batch, np.bool_)
        self.order, self.spare, self.touched = np.empty((3, 3 * batch), np.int64)
        self.starts = np.empty(3 * batch + 1, np.int64)

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch with one negative per triple, of which one side was replaced."""
        n, run = len(batch), self.threads.run
        if n > len(self.loss):
            self._room(n)
        head, relation, tail = (c.numpy() for c in (batch.head, batch.relation, batch.tail))
        false_head, false_tail = negatives.head[:, 0].numpy(), negatives.tail[:, 0].numpy()
        margin = self.learning.margin if self.learning.objective == "margin" else -1.0
        run(
            cpu_step.gradients, n, self.kind, self.norm, margin, LOGISTIC_ZERO,
            float(self.learning.cubes), self.rows, self.shift, self.relations, self.directions,
            head, relation, tail, false_head, false_tail,
            self.g_entity, self.g_shift, self.g_relation, self.g_direction,
            self.active, self.loss, self.teaching,
        )  # fmt: skip
        self.steps += 1
        size = self.learning.lr / (1 - BETAS[0] ** self.steps)
        root = (1 - BETAS[1] ** self.steps) ** -0.5
        adam = (self.learning.rows, size, root, self.learning.weight_decay)
        false = np.where(false_head != head, false_head, false_tail)
        group = self._group(np.stack([head, tail, false], 1))
        projection = self._state("entity_projection") if self.shift.size else (NO_ROWS,) * 3
        squares = run(
            cpu_adam.update_entities, group[0] if self.learning.rows else self.model.entities,
            "entity" in self.unit, *group, self.g_entity.reshape(-1, self.rows.shape[1]),
            self.g_shift.reshape(-1), *adam, *self._state("entity"), self.rows,
            *projection, self.shift, self.moved,
        )  # fmt: skip
        group = self._group(relation[:, None])
        gradients = {"relation": self.g_relation}
        if self.direction:
            gradients[self.direction] = self.g_direction
        for name, gradient in gradients.items():
            squares += run(
                cpu_adam.update_relations,
                group[0] if self.learning.rows else self.model.relations,
                name in self.unit, *group, gradient, *adam, *self._state(name), self.ready[name],
            )  # fmt: skip
        loss, teaching = self.loss[:n].sum(dtype=np.float64), self.teaching[:n].sum()
        total = sums.numpy()
        total[:3] += loss, teaching, np.sqrt(sum(squares))
        total[3] += np.isfinite(total[0])

    def _group(self, ids: Array) -> tuple[int, Array, Array, Array]:
        """Group the positions of ids [B, n] that have a gradient by id."""
        arrays = self.order, self.spare, self.touched, self.starts
        different = cpu_adam.group(ids, self.active, *arrays)
        return different, self.touched, self.starts, self.order

    def _state(self, name: str) -> tuple[Array, Array, Array]:
        return self.tables[name], self.means[name], self.squares[name]

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Array:
        """Make the query vectors [n, D] of the ready rows."""
        out = np.empty((len(anchor), self.rows.shape[1]), np.float32)
        self.threads.run(
            cpu_step.queries, len(anchor), self.kind, side is Side.HEAD, self.rows, self.shift,
            self.relations, self.directions, anchor.numpy(), relation.numpy(), out,
        )  # fmt: skip
        return out


class NumbaKernels(Kernels):
    """Compiled twins of the hot operations; what has none runs on the reference path."""

    name = "numba"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self.threads = Threads()
        self._learner: NumbaLearner | None = None
        self._seen: Array = np.empty((0, 0), np.int64)
        self._mark = 1

    def learner(self, model: Model, learning: Learning, count: int = 1) -> Learner:
        """Return a compiled learner where there is one."""
        known = type(model) in KINDS and model.entity.dtype == torch.float32
        if not (known and learning.compiled and count == 1):
            return super().learner(model, learning, count)
        self._learner = NumbaLearner(model, learning, self.threads)
        return self._learner

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        """Refresh the keys of each side in place, one pass per key."""
        model, config, seed, tick = asked.model, asked.config, asked.seed, asked.tick
        if model.form not in FORMS or asked.is_known is not None:
            super().refresh(asked)
            return
        learner = self._learner if self._learner and self._learner.model is model else None
        rows, shift = self._rows(model, learner, config)
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
            scale = np.full(len(key), 1 / np.float32(config.temperature), np.float32)
            if (weight := model.weight_of(relation)) is not None:
                scale *= weight.numpy()
            starts = [
                np.uint32(random.stream(seed, tick, purpose).item())
                for purpose in (cache.fresh, cache.noise)
            ]
            arguments = (
                cache.ids.numpy(), key.numpy(), query, rows, FORMS[model.form], model.metric, shift,
                direction, model.unit_projection, config.n2, *starts, config.shared_candidates,
                STRATEGIES[config.refresh], scale, config.candidates == "set", self._mark,
            )  # fmt: skip
            self._mark += len(key)  # no mark is used twice, so none need be wiped off
            each = [(*arguments, mine) for mine in seen]
            self.threads.run_each(cpu_refresh.refresh, len(key), each)

    def _rows(
        self, model: Model, learner: NumbaLearner | None, config: TrainConfig
    ) -> tuple[Array, Array]:
        """Return the entity rows [|E|, D] and, where entities have shifts of their own, those."""
        dtype = self.rounding(config)
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
        """Return Σₑ weight[n, E]·∂‖q − e‖/∂q [n, D]; in norm 2 the weight is by the distance."""
        out = torch.zeros_like(query)
        arrays = (part.detach().contiguous().numpy() for part in (weight, query, rows))
        self.threads.run(cpu_rank.slopes, len(query), *arrays, norm, out.numpy())
        return out

    def count(self, scores: Tensor, answer: Tensor, known: Known | None) -> Tensor:
        """Count in each row of scores [n, E] what is above the answer [n], level with it, wrong."""
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
