"""Gradient steps on CPUs, for the models whose gradients are compiled."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.caches import Contrast
from nscaching.kernels.codes import GIVEN
from nscaching.kernels.compiled import CompiledLearner
from nscaching.kernels.cpu import adam, candidates, forms, step
from nscaching.kernels.cpu.threads import Threads
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import BETAS, Learning
from nscaching.kernels.state import State
from nscaching.models import Model

Array = npt.NDArray[Any]
Group = tuple[int, Array, Array, Array]
"""(number of different ids, the ids, start of each id's places in the order, the order)."""

NONE = np.empty(0, np.float32)
NO_ROWS = np.empty((0, 0), np.float32)


class NumbaLearner(CompiledLearner):
    def __init__(self, model: Model, learning: Learning, threads: Threads) -> None:
        super().__init__(model, learning)
        self.threads, self.steps = threads, 0
        vectors = {name: rows.numpy() for name, rows in self.vectors.items()}
        self.rows, self.relations = vectors["entity"], vectors["relation"]
        self.directions = vectors[self.direction] if self.direction else NO_ROWS
        self.shift = np.empty(model.entities if self.projection else 0, np.float32)
        self.moved = np.zeros(model.entities, np.uint8)  # entities that ever had a gradient
        self.scored_by = self.rows, self.shift, self.relations, self.directions
        self.squares_sum = 0.0  # the sum of squares of the latest step's gradients
        self.reload()
        self.loss, self.order, self.g_entity = NONE, np.empty(0, np.int64), NO_ROWS
        self._make_room(1, 3, 3)

    def reload(self) -> None:
        super().reload()
        if self.projection:
            self.shift[:] = (self.rows * self.tables[self.projection].numpy()).sum(1)

    def own_state(self) -> dict[str, Tensor]:
        return {"moved": torch.from_numpy(self.moved), "shift": torch.from_numpy(self.shift)}

    def restore(self, state: State) -> None:
        """Restore a checkpoint; if its state lacks ``moved``, any entity may have momentum."""
        self.moved[:] = 1
        super().restore(state)

    def _make_room(self, batch: int, places: int, gradients: int) -> None:
        size, relation = self.rows.shape[1], self.relations.shape[1]
        if batch > len(self.loss):
            self.g_relation = np.empty((0 if self.kind == GIVEN else batch, relation), np.float32)
            self.g_direction = np.empty((batch if self.direction else 0, relation), np.float32)
            self.active, self.teaching = np.empty((2, batch), np.bool_)
            self.loss = np.empty(batch, np.float32)
        if places > len(self.order):
            self.order, self.spare, self.touched = np.empty((3, places), np.int64)
            self.starts = np.empty(places + 1, np.int64)
        if gradients > len(self.g_entity):
            self.g_entity = np.empty((gradients, size), np.float32)
            self.g_shift = np.empty(gradients if self.projection else 0, np.float32)

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        assert isinstance(negatives, Negatives)
        self.current()
        n = len(batch)
        if self.is_single(negatives):
            self._learn_from_one(batch, negatives)
        else:
            self._learn_from_many(batch, negatives)
        self._count(n, sums)

    def _count(self, n: int, sums: Tensor) -> None:
        """Add losses, teaching triples and gradients of a step of n triples to the sums [4]."""
        total = sums.numpy()
        total[0] += self.loss[:n].sum(dtype=np.float64)
        total[1] += self.teaching[:n].sum()
        total[2] += np.sqrt(self.squares_sum)
        total[3] += np.isfinite(total[0])

    def _learn_from_one(self, batch: Batch, negatives: Negatives) -> None:
        n = len(batch)
        self._make_room(n, 3 * n, 3 * n)
        head, relation, tail = (c.numpy() for c in (batch.head, batch.relation, batch.tail))
        false_head, false_tail = negatives.head[:, 0].numpy(), negatives.tail[:, 0].numpy()
        margin = self.learning.margin if self.learning.objective == "margin" else -1.0
        self.threads.run(
            step.gradients, n, self.kind, self.model.norm, margin, LOGISTIC_ZERO,
            float(self.learning.cubes), *self.scored_by, head, relation, tail,
            false_head, false_tail,
            self.g_entity[: 3 * n].reshape(n, 3, -1), self.g_shift[: 3 * n].reshape(-1, 3),
            self.g_relation, self.g_direction, self.active, self.loss, self.teaching,
        )  # fmt: skip
        false = np.where(false_head != head, false_head, false_tail)
        self._move(self._group(np.stack([head, tail, false], 1), self.active), relation)

    def _learn_from_many(self, batch: Batch, negatives: Negatives) -> None:
        given, loss, teaching = self.slopes(batch, negatives)
        self.learn(batch, *given)
        n = len(batch)
        self.loss[:n], self.teaching[:n] = loss.numpy(), teaching.numpy()

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        n = len(batch)
        anchor = torch.where(replace_head, batch.tail, batch.head).unsqueeze(1)
        ids = torch.cat([anchor, entity], 1).numpy()  # [B, 1 + K]
        self._make_room(n, ids.size, min(ids.size, self.model.entities))
        relation, slopes = batch.relation.numpy(), slopes.contiguous()
        query, g_anchor = np.empty((2, n, self.rows.shape[1]), np.float32)
        g_anchor_shift = np.empty(n if self.projection else 0, np.float32)
        entity_active = np.empty(ids.shape, np.bool_)
        how = self.kind, self.model.norm
        self.threads.run(
            candidates.by_query, n, *how, *self.scored_by,
            batch.head, relation, batch.tail, replace_head, entity.contiguous(), slopes,
            query, g_anchor, g_anchor_shift, self.g_relation, self.g_direction,
            entity_active, self.active,
        )  # fmt: skip
        # Each place is active or not on its own.
        group = self._group(ids.reshape(-1, 1), entity_active.reshape(-1))
        self.threads.run(
            candidates.by_entity, group[0], *how, self.rows, self.shift, self.directions,
            relation, slopes, query, g_anchor, g_anchor_shift, *group[1:],
            self.g_entity, self.g_shift,
        )  # fmt: skip
        each = np.arange(group[0] + 1)  # the u-th entity's gradient is the u-th
        self._move((group[0], group[1], each, each), relation)

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        out = torch.empty(entity.shape)
        self.threads.run(
            candidates.score, len(batch), self.kind, self.model.norm, *self.scored_by,
            batch.head, batch.relation, batch.tail, replace_head, entity.contiguous(), out,
        )  # fmt: skip
        return out

    def _move(self, group: Group, relation: Array) -> None:
        """Move all rows; the group says whose gradients are where in g_entity."""
        self.steps += 1
        squares = self._update("entity", group, self.g_entity, len(relation))
        group = self._group(relation[:, None], self.active)
        squares += self._update("relation", group, self.g_relation, len(relation))
        if self.direction:
            squares += self._update(self.direction, group, self.g_direction, len(relation))
        self.squares_sum = squares

    def _update(self, name: str, group: Group, gradients: Array, batch: int) -> float:
        learning, is_entity = self.learning, name == "entity"
        size, root = learning.lr, 0.0
        if not learning.adagrad:
            size = learning.lr / (1 - BETAS[0] ** self.steps)
            root = (1 - BETAS[1] ** self.steps) ** -0.5
        decay = learning.weight_decay * batch
        rows_only = learning.rows_only
        moved = self.moved if is_entity else np.ones(len(self.tables[name]), np.uint8)
        shift, g_shift, projection = NONE, NONE, [NO_ROWS] * 3
        if is_entity and self.projection:
            shift, g_shift = self.shift, self.g_shift
            projection = [part.numpy() for part in self.table_and_moments(self.projection)]
        squares, rows = np.zeros(group[0]), group[0] if rows_only else len(self.tables[name])
        self.threads.run(
            adam.update, rows, name in self.unit, *group, gradients, g_shift, rows_only,
            size, root, decay, *self.table_and_moments(name), self.vectors[name],
            *projection, shift, moved, squares, numbers=rows * gradients.shape[1],
        )  # fmt: skip
        return float(squares.sum())  # in one order, with any number of threads

    def _group(self, ids: Array, active: Array) -> Group:
        arrays = self.order, self.spare, self.touched, self.starts
        different = adam.group(ids, active, *arrays)
        return different, self.touched, self.starts, self.order

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Array:
        if self.kind == GIVEN:
            return self.model.query(side, anchor, relation).detach().numpy()
        out = np.empty((len(anchor), self.rows.shape[1]), np.float32)
        asked = side is Side.HEAD, *self.scored_by, anchor, relation
        self.threads.run(forms.queries, len(anchor), self.kind, *asked, out)
        return out
