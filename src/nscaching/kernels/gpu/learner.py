"""Gradient steps on GPUs, for the models whose gradients are compiled."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.codes import COMPLEX, DIRECTIONS, FORMS, KINDS, TRANSD, UNIT
from nscaching.kernels.gpu import adam, candidates, cubes, step
from nscaching.kernels.gpu.launch import CHUNK, warps_of
from nscaching.kernels.learner import BETAS, Learner, Learning, slopes_of_many
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.state import State, join, part
from nscaching.models import Model

__all__ = ["TritonLearner"]

# Partial sums of squares that one program adds up by itself.
MOST_PARTIAL = 8192
# Candidates that one program scores.
MOST_AT_ONCE = 128
# Candidates that one program at least goes through for their gradients, one after the other: a
# query's own gradient costs about as much as one of them. More programs than these wait in line.
LEAST_SHARE, MOST_PROGRAMS = 4, 8192


class TritonLearner(Learner):
    """Gradient steps of the models whose gradients are compiled; keeps their rows ready."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning, self.kind = model, learning, KINDS[type(model)]
        device = model.entity.device
        self.tables = {name: table.detach() for name, table in model.named_parameters()}
        self.means = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.squares = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.unit = UNIT.get(self.kind, ())
        self.ready = {
            name: torch.empty_like(table) if name in self.unit else table
            for name, table in self.tables.items()
        }
        self.gradients = {
            name: torch.zeros_like(table, dtype=torch.int64)
            for name, table in self.tables.items()
            if name != "entity_projection"
        }
        self.rows, self.relations = self.ready["entity"], self.ready["relation"]
        self.direction = DIRECTIONS.get(self.kind, "")
        self.directions = self.ready[self.direction] if self.direction else self.relations
        self.projection = "entity_projection" if self.kind == TRANSD else ""
        self.shift = self.rows.new_empty(model.entities if self.projection else 1)
        self.g_shift = torch.zeros_like(self.shift, dtype=torch.int64)
        self.touched = {
            "entity": torch.zeros(model.entities, dtype=torch.int32, device=device),
            "relation": torch.zeros(model.relations, dtype=torch.int32, device=device),
        }
        """Rows that have a gradient: that of others is zero and need not be read."""
        self.rounded: Tensor | None = None
        """Rows rounded to bfloat16, once a refresh has asked for them."""
        self.reload()
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=device)
        self.powers = torch.ones(2, dtype=torch.float64, device=device)  # β₁ᵗ, β₂ᵗ
        # A program moves some rows; their partial sums of squares follow one another.
        size = self.rows.shape[1]
        self.block = triton.next_power_of_2(size)
        self.at_once = max(1, 1024 // self.block)
        self.programs = {
            name: triton.cdiv(len(self.tables[name]), self.at_once) for name in self.gradients
        }
        self.partial = torch.zeros(sum(self.programs.values()), device=device)
        self.losses = self.teachings = torch.empty(0, device=device)
        self.own_sums = torch.zeros(4, dtype=torch.float64, device=device)
        """Where there is no loss of its own to report: what is added here, nobody reads."""

    def reload(self) -> None:
        """Make all rows ready anew."""
        for name in self.unit:
            self.ready[name].copy_(F.normalize(self.tables[name]))
        if self.projection:
            self.shift.copy_((self.rows * self.tables[self.projection]).sum(1))
        if self.rounded is not None:
            self.rounded.copy_(self.rows)

    def checkpoint(self) -> State:
        """Return means, squares, steps and the powers of β; and the rows that are ready."""
        power = max(float(self.powers[1]), 1e-300)  # beyond that, the number makes no difference
        steps = round(math.log(power) / math.log(BETAS[1]))
        ready = {name: self.ready[name] for name in self.unit}
        rows = {"powers": self.powers, "gpu_shift": self.shift}
        tables = join(mean=self.means, square=self.squares, ready=ready, rows=rows)
        return tables | join(steps=dict.fromkeys(self.tables, steps))

    def restore(self, state: State) -> None:
        """Take what a checkpoint holds; another kind of learner leaves no rows that are ready."""
        for kind, tables in (("mean", self.means), ("square", self.squares)):
            for name, table in tables.items():
                table.copy_(state[f"{kind}.{name}"])
        self.reload()
        if "rows.powers" in state:
            self.powers.copy_(state["rows.powers"])
            self.shift.copy_(state["rows.gpu_shift"])
            for name in self.unit:
                self.ready[name].copy_(state[f"ready.{name}"])
            if self.rounded is not None:
                self.rounded.copy_(self.rows)
        else:
            self.powers.copy_(self.betas ** max(part(state, "steps").values()))

    def rounded_rows(self) -> Tensor:
        """Return the ready rows in bfloat16; from now on each step keeps them so."""
        if self.rounded is None:
            self.rounded = self.rows.bfloat16()
        return self.rounded

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch; the negatives of a triple replace all its head or all its tail."""
        self._make_room(len(batch))
        if negatives.head.shape[1] == 1 and self.learning.compiled and not negatives.adversarial:
            self._learn_from_one(batch, negatives)
        else:
            self._learn_from_many(batch, negatives)
        if self.learning.cubes:
            self._penalise(batch)
        self._move(len(batch), sums)

    def _make_room(self, n: int) -> None:
        if n > len(self.losses):
            self.losses, self.teachings = (self.rows.new_zeros(n) for _ in range(2))

    def _learn_from_one(self, batch: Batch, negatives: Negatives) -> None:
        step.gradients[(len(batch),)](
            batch.head, batch.relation, batch.tail, negatives.head, negatives.tail,
            *self._rows_and_gradients(), self.losses, self.teachings,
            float(self.learning.margin), LOGISTIC_ZERO,
            **self._shape(), LOGISTIC=self.learning.objective == "logistic", num_warps=1,
        )  # fmt: skip

    def _penalise(self, batch: Batch) -> None:
        shape = self._shape()
        del shape["NORM"]  # of scores, which the penalty does not know
        cubes.penalise[(len(batch),)](
            batch.head, batch.relation, batch.tail, self.rows, self.relations,
            self.gradients["entity"], self.gradients["relation"], *self.touched.values(),
            float(self.learning.cubes), **shape, num_warps=1,
        )  # fmt: skip

    def _learn_from_many(self, batch: Batch, negatives: Negatives) -> None:
        replace, entity, loss, teaching, slopes = slopes_of_many(self, batch, negatives)
        self.losses[: len(batch)].copy_(loss)
        self.teachings[: len(batch)].copy_(teaching)
        self._add_gradients(batch, replace, entity, slopes)

    def _add_gradients(
        self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor
    ) -> None:
        count = entity.shape[1]
        share = max(LEAST_SHARE, count * len(batch) // MOST_PROGRAMS)
        candidates.gradients[(len(batch), triton.cdiv(count, share))](
            batch.head, batch.relation, batch.tail, replace_head, entity, slopes.contiguous(),
            count, share, *self._rows_and_gradients(), **self._shape(), num_warps=1,
        )  # fmt: skip

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        """Learn by the slopes [B, K] of some loss by these scores."""
        self._make_room(len(batch))
        self._add_gradients(batch, replace_head, entity, slopes)
        self._move(len(batch), self.own_sums)

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        """Score entities [B, K] in place of head or tail, with no gradient; ``learn`` is next."""
        model, (n, count), size = self.model, entity.shape, self.rows.shape[1]
        many = min(MOST_AT_ONCE, max(2, triton.next_power_of_2(count)))
        out = self.rows.new_empty(n, count)
        candidates.score[(n, triton.cdiv(count, many))](
            batch.head, batch.relation, batch.tail, replace_head, entity,
            self.rows, self.relations, self.directions, self.shift, out, count,
            C=many, D=size, CHUNK=CHUNK, KIND=self.kind, FORM=FORMS[model.form],
            NORM=model.metric, UNIT=model.unit_projection, HAS_SHIFT=bool(self.projection),
            num_warps=warps_of(model.form, many, size),
        )  # fmt: skip
        return out

    def _rows_and_gradients(self) -> tuple[Tensor, ...]:
        direction = self.gradients[self.direction] if self.direction else self.g_shift
        rows = self.rows, self.shift, self.relations, self.directions
        gradients = self.gradients["entity"], self.g_shift, self.gradients["relation"], direction
        return *rows, *gradients, *self.touched.values()

    def _shape(self) -> dict[str, int]:
        size = self.rows.shape[1]
        width = size // 2 if self.kind == COMPLEX else size
        block = triton.next_power_of_2(width)
        return {"D": size, "BLOCK": block, "KIND": self.kind, "NORM": self.model.norm}

    def _move(self, n: int, sums: Tensor) -> None:
        """Let Adam move all rows by the gradients of n triples."""
        size = self.rows.shape[1]
        self.powers *= self.betas
        decay = self.learning.weight_decay * n
        first, last = 0, list(self.programs)[-1]
        for name, programs in self.programs.items():
            shifted = bool(self.projection) and name == "entity"
            rounding = name == "entity" and self.rounded is not None
            projection = self.projection if shifted else name
            adam.adam[(programs,)](
                *self._state(name), self.gradients[name], self.ready[name],
                self.rounded if rounding else self.ready[name],
                *self._state(projection), self.shift, self.g_shift,
                self.touched["entity" if name == "entity" else "relation"],
                self.powers, self.partial, first, self.learning.lr, decay,
                len(self.tables[name]), D=size, BLOCK=self.block, ROWS=self.at_once,
                UNIT=name in self.unit, SHIFTED=shifted, ROUNDED=rounding,
                ROWS_ONLY=self.learning.rows, LAST=name in ("entity", last), num_warps=4,
            )  # fmt: skip
            first += programs
        partial = self.partial
        if len(partial) > MOST_PARTIAL:
            partial = partial.sum(0, dtype=torch.float64, keepdim=True)
        adam.finish[(1,)](self.losses, self.teachings, partial, sums, n, len(partial), num_warps=8)

    def _state(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        return self.tables[name], self.means[name], self.squares[name]
