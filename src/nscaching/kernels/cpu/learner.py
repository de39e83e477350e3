"""Gradient steps on CPUs, for the models whose gradients are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.codes import DIRECTIONS, KINDS, TRANSD, UNIT
from nscaching.kernels.cpu import adam, candidates, step
from nscaching.kernels.cpu.threads import Threads
from nscaching.kernels.learner import BETAS, Learner, Learning, slopes_of_many
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.state import State, join, part
from nscaching.models import Model

__all__ = ["NONE", "NO_ROWS", "Array", "NumbaLearner"]

Array = npt.NDArray[Any]
Group = tuple[int, Array, Array, Array]
"""How many different ids there are, which, and where the places of each begin in an order."""

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
        self.loss, self.order, self.g_entity = NONE, np.empty(0, np.int64), NO_ROWS
        self._make_room(1, 3, 3)

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

    def _make_room(self, batch: int, places: int, gradients: int) -> None:
        """Make room for a batch, for the places of entities in it and gradients by them."""
        size, relation = self.rows.shape[1], self.relations.shape[1]
        if batch > len(self.loss):
            self.g_relation = np.empty((batch, relation), np.float32)
            self.g_direction = np.empty((batch if self.direction else 0, relation), np.float32)
            self.active, self.teaching = np.empty((2, batch), np.bool_)
            self.loss = np.empty(batch, np.float32)
        if places > len(self.order):
            self.order, self.spare, self.touched = np.empty((3, places), np.int64)
            self.starts = np.empty(places + 1, np.int64)
        if gradients > len(self.g_entity):
            self.g_entity = np.empty((gradients, size), np.float32)
            self.g_shift = np.empty(gradients if self.shift.size else 0, np.float32)

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch; the negatives of a triple replace all its head or all its tail."""
        n, count = len(batch), negatives.head.shape[1]
        if count == 1 and self.learning.compiled and not negatives.adversarial:
            squares = self._learn_from_one(batch, negatives)
        else:
            squares = self._learn_from_many(batch, negatives)
        loss, teaching = self.loss[:n].sum(dtype=np.float64), self.teaching[:n].sum()
        total = sums.numpy()
        total[:3] += loss, teaching, np.sqrt(squares)
        total[3] += np.isfinite(total[0])

    def _learn_from_one(self, batch: Batch, negatives: Negatives) -> float:
        n = len(batch)
        self._make_room(n, 3 * n, 3 * n)
        head, relation, tail = (c.numpy() for c in (batch.head, batch.relation, batch.tail))
        false_head, false_tail = negatives.head[:, 0].numpy(), negatives.tail[:, 0].numpy()
        margin = self.learning.margin if self.learning.objective == "margin" else -1.0
        self.threads.run(
            step.gradients, n, self.kind, self.norm, margin, LOGISTIC_ZERO,
            float(self.learning.cubes), self.rows, self.shift, self.relations, self.directions,
            head, relation, tail, false_head, false_tail,
            self.g_entity[: 3 * n].reshape(n, 3, -1), self.g_shift[: 3 * n].reshape(-1, 3),
            self.g_relation, self.g_direction, self.active, self.loss, self.teaching,
        )  # fmt: skip
        false = np.where(false_head != head, false_head, false_tail)
        group = self._group(np.stack([head, tail, false], 1), self.active)
        return self._move(group, relation)

    def _learn_from_many(self, batch: Batch, negatives: Negatives) -> float:
        n = len(batch)
        replace, entity, loss, teaching, slopes = slopes_of_many(self, batch, negatives)
        squares = self._learn_by_slopes(batch, replace, entity, slopes)
        self.loss[:n], self.teaching[:n] = loss.numpy(), teaching.numpy()
        return squares

    def _learn_by_slopes(
        self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor
    ) -> float:
        n = len(batch)
        anchor = torch.where(replace_head, batch.tail, batch.head).unsqueeze(1)
        ids = torch.cat([anchor, entity], 1).numpy()  # [B, 1 + K]
        self._make_room(n, ids.size, min(ids.size, self.model.entities))
        columns = batch.head, batch.relation, batch.tail, replace_head, entity, slopes
        arrays = [column.contiguous().numpy() for column in columns]
        query, g_anchor = np.empty((2, n, self.rows.shape[1]), np.float32)
        g_anchor_shift = np.empty(n if self.shift.size else 0, np.float32)
        entity_active = np.empty(ids.shape, np.bool_)
        how = self.kind, self.norm, float(self.learning.cubes)
        self.threads.run(
            candidates.by_query, n, *how, self.rows, self.shift, self.relations, self.directions,
            *arrays, query, g_anchor, g_anchor_shift, self.g_relation, self.g_direction,
            entity_active, self.active,
        )  # fmt: skip
        # Each place may be active by itself.
        group = self._group(ids.reshape(-1, 1), entity_active.reshape(-1))
        self.threads.run(
            candidates.by_entity, group[0], *how, self.rows, self.shift, self.directions,
            arrays[1], arrays[5], query, g_anchor, g_anchor_shift, *group[1:],
            self.g_entity, self.g_shift,
        )  # fmt: skip
        each = np.arange(group[0] + 1)  # the u-th entity's gradient is the u-th
        return self._move((group[0], group[1], each, each), arrays[1])

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        """Score entities [B, K] in place of head or tail, with no gradient; ``learn`` is next."""
        columns = batch.head, batch.relation, batch.tail, replace_head, entity
        arrays = [column.contiguous().numpy() for column in columns]
        out = torch.empty(entity.shape)
        self.threads.run(
            candidates.score, len(batch), self.kind, self.norm,
            self.rows, self.shift, self.relations, self.directions, *arrays, out.numpy(),
        )  # fmt: skip
        return out

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        """Learn by the slopes [B, K] of some loss by these scores."""
        self._learn_by_slopes(batch, replace_head, entity, slopes)

    def _move(self, group: Group, relation: Array) -> float:
        """Let Adam move all rows; return the sum of squares of their gradients.

        The group says where in g_entity the gradients of which entities are.
        """
        run = self.threads.run
        self.steps += 1
        size = self.learning.lr / (1 - BETAS[0] ** self.steps)
        root = (1 - BETAS[1] ** self.steps) ** -0.5
        how = (self.learning.rows, size, root, self.learning.weight_decay * len(relation))
        projection = self._state("entity_projection") if self.shift.size else (NO_ROWS,) * 3
        squares = run(
            adam.update_entities, group[0] if self.learning.rows else self.model.entities,
            "entity" in self.unit, *group, self.g_entity, self.g_shift, *how,
            *self._state("entity"), self.rows,
            *projection, self.shift, self.moved,
        )  # fmt: skip
        group = self._group(relation[:, None], self.active)
        gradients = {"relation": self.g_relation}
        if self.direction:
            gradients[self.direction] = self.g_direction
        for name, gradient in gradients.items():
            squares += run(
                adam.update_relations,
                group[0] if self.learning.rows else self.model.relations,
                name in self.unit, *group, gradient, *how, *self._state(name), self.ready[name],
            )  # fmt: skip
        return float(sum(squares))

    def _group(self, ids: Array, active: Array) -> Group:
        """Group the positions of ids [n, …] whose rows are active by id."""
        arrays = self.order, self.spare, self.touched, self.starts
        different = adam.group(ids, active, *arrays)
        return different, self.touched, self.starts, self.order

    def _state(self, name: str) -> tuple[Array, Array, Array]:
        return self.tables[name], self.means[name], self.squares[name]

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Array:
        """Make the query vectors [n, D] of the ready rows."""
        out = np.empty((len(anchor), self.rows.shape[1]), np.float32)
        self.threads.run(
            step.queries, len(anchor), self.kind, side is Side.HEAD, self.rows, self.shift,
            self.relations, self.directions, anchor.numpy(), relation.numpy(), out,
        )  # fmt: skip
        return out
