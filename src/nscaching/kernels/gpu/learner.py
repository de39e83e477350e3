"""Gradient steps on GPUs, for the models whose gradients are compiled."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.codes import COMPLEX
from nscaching.kernels.compiled import CompiledLearner
from nscaching.kernels.gpu import adam, candidates, step
from nscaching.kernels.gpu.launch import scoring
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import BETAS, Learning
from nscaching.kernels.state import State
from nscaching.models import Model

# Partial sums of squares that one program adds up by itself.
MOST_PARTIAL = 8192
# Candidates that one program scores.
MOST_AT_ONCE = 128
# Least number of candidates whose gradients one program adds, one after the other: the query's own
# gradient costs about as much as one of them. Programs beyond the most would wait for others.
LEAST_SHARE, MOST_PROGRAMS = 4, 8192


class TritonLearner(CompiledLearner):
    """Gradient steps of kernels that Triton compiles.

    ``rows``, ``relations``, ``directions`` and ``shift`` are what the kernels score by.
    """

    def __init__(self, model: Model, learning: Learning) -> None:
        super().__init__(model, learning)
        device = model.entity.device
        self.gradients = {
            name: torch.zeros_like(table, dtype=torch.int64)
            for name, table in self.tables.items()
            if name != "entity_projection"
        }
        self.rows, self.relations = self.vectors["entity"], self.vectors["relation"]
        self.directions = self.vectors[self.direction] if self.direction else self.relations
        self.shift = self.rows.new_empty(model.entities if self.projection else 1)
        self.g_shift = torch.zeros_like(self.shift, dtype=torch.int64)
        self.touched = {
            "entity": torch.zeros(model.entities, dtype=torch.int32, device=device),
            "relation": torch.zeros(model.relations, dtype=torch.int32, device=device),
        }
        """Rows that have a gradient; the gradient of other rows is zero and need not be read."""
        self.rounded: Tensor | None = None
        """Rows rounded to bfloat16, once a refresh has asked for them."""
        self.reload()
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=device)
        self.powers = torch.ones(2, dtype=torch.float64, device=device)  # β₁ᵗ, β₂ᵗ
        # A program moves some rows; their partial sums of squares follow one another.
        self.block = triton.next_power_of_2(self.rows.shape[1])
        self.at_once = max(1, 1024 // self.block)
        self.programs = {
            name: triton.cdiv(len(self.tables[name]), self.at_once) for name in self.gradients
        }
        self.partial = torch.zeros(sum(self.programs.values()), device=device)
        self.losses = self.teachings = torch.empty(0, device=device)
        self.own_sums = torch.zeros(4, dtype=torch.float64, device=device)
        """Receives the sums of steps that have no loss to report; nothing reads these sums."""

    @property
    def steps(self) -> int:
        """The number of steps, from β₂ᵗ: counted on the GPU, where CUDA graphs replay steps."""
        power = max(float(self.powers[1]), 1e-300)  # beyond, the number makes no difference
        return round(math.log(power) / math.log(BETAS[1]))

    @steps.setter
    def steps(self, steps: int) -> None:
        self.powers.copy_(self.betas**steps)

    def reload(self) -> None:
        """Rebuild rows, relations, directions, shift and rounded rows from the parameters."""
        super().reload()
        if self.projection:
            self.shift.copy_((self.rows * self.tables[self.projection]).sum(1))
        if self.rounded is not None:
            self.rounded.copy_(self.rows)

    def own_state(self) -> dict[str, Tensor]:
        return {"powers": self.powers, "gpu_shift": self.shift}

    def restore(self, state: State) -> None:
        super().restore(state)
        if self.rounded is not None:
            self.rounded.copy_(self.rows)

    def rounded_rows(self) -> Tensor:
        """Return the rows in bfloat16; from now on each step rounds the rows that it moves."""
        if self.rounded is None:
            self.rounded = self.rows.bfloat16()
        return self.rounded

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        self.current()
        self._make_room(len(batch))
        triple, shape = (batch.head, batch.relation, batch.tail), self._shape()
        if self.is_single(negatives):
            step.gradients[(len(batch),)](
                *triple, negatives.head, negatives.tail, *self._rows_and_gradients(),
                self.losses, self.teachings, float(self.learning.margin), LOGISTIC_ZERO,
                NORM=self.model.norm, LOGISTIC=self.learning.objective == "logistic", **shape,
            )  # fmt: skip
        else:
            given, loss, teaching = self.slopes(batch, negatives)
            self.losses[: len(batch)].copy_(loss)
            self.teachings[: len(batch)].copy_(teaching)
            self._add_gradients(batch, *given)
        if self.learning.cubes:
            gradients = self.gradients["entity"], self.gradients["relation"]
            step.penalise[(len(batch),)](
                *triple, self.rows, self.relations, *gradients, *self.touched.values(),
                float(self.learning.cubes), **shape,
            )  # fmt: skip
        self._move(len(batch), sums)

    def _make_room(self, n: int) -> None:
        if n > len(self.losses):
            self.losses, self.teachings = (self.rows.new_zeros(n) for _ in range(2))

    def _add_gradients(
        self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor
    ) -> None:
        count = entity.shape[1]
        share = max(LEAST_SHARE, count * len(batch) // MOST_PROGRAMS)
        candidates.gradients[(len(batch), triton.cdiv(count, share))](
            batch.head, batch.relation, batch.tail, replace_head, entity, slopes.contiguous(),
            count, share, *self._rows_and_gradients(), NORM=self.model.norm, **self._shape(),
        )  # fmt: skip

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        self._make_room(len(batch))
        self._add_gradients(batch, replace_head, entity, slopes)
        self._move(len(batch), self.own_sums)

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        n, count = entity.shape
        shape = self.scoring(min(MOST_AT_ONCE, count))
        out = self.rows.new_empty(n, count)
        candidates.score[(n, triton.cdiv(count, shape["C"]))](
            batch.head, batch.relation, batch.tail, replace_head, entity,
            self.rows, self.relations, self.directions, self.shift, out, count, **shape,
        )  # fmt: skip
        return out

    def scoring(self, count: int) -> dict[str, Any]:
        """Return the launch parameters of programs that score so many candidates."""
        return scoring(self.model, count, self.rows.shape[1], self.kind, bool(self.projection))

    def _rows_and_gradients(self) -> tuple[Tensor, ...]:
        direction = self.gradients[self.direction] if self.direction else self.g_shift
        rows = self.rows, self.shift, self.relations, self.directions
        gradients = self.gradients["entity"], self.g_shift, self.gradients["relation"], direction
        return *rows, *gradients, *self.touched.values()

    def _shape(self) -> dict[str, int]:
        """Return the launch parameters of programs that add the gradients of a triple."""
        size = self.rows.shape[1]
        block = triton.next_power_of_2(size // 2 if self.kind == COMPLEX else size)
        return {"D": size, "BLOCK": block, "KIND": self.kind, "num_warps": 1}

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
                *self.table_and_moments(name), self.gradients[name], self.vectors[name],
                self.rounded if rounding else self.vectors[name],
                *self.table_and_moments(projection), self.shift, self.g_shift,
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
