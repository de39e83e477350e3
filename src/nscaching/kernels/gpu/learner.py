"""Gradient steps on GPUs, for the models whose gradients are compiled."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.caches import Contrast
from nscaching.kernels.codes import COMPLEX, FORMS
from nscaching.kernels.compiled import AT_ONCE, CompiledLearner, is_compact
from nscaching.kernels.gpu import adam, candidates, step
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import BETAS, Learning
from nscaching.kernels.state import State
from nscaching.models import Form, Model

# Candidates that one program scores.
MOST_AT_ONCE = 128
# Least number of candidates whose gradients one program adds, one after the other: the query's own
# gradient costs about as much as one of them. Programs beyond the most would wait for others.
LEAST_SHARE, MOST_PROGRAMS = 4, 8192
# Numbers of each candidate's row that a kernel holds at once; more warps or longer pieces were
# slower on an H200.
CHUNK = 16
# Numbers that a thread holds of the rows where rows are read more than once (of 255 registers).
HELD = 224
# Most warps of a program; with more, registers spill to slower memory.
MOST_WARPS = 32


def scoring(model: Model, count: int, size: int, kind: int, has_shift: bool) -> dict[str, Any]:
    """Return the parameters for programs that score so many candidates with rows of this size."""
    many = max(2, triton.next_power_of_2(count))
    warps = max(4, many // 64)
    if model.form is Form.SHIFTED:
        threads = many * math.ceil(size / CHUNK) * CHUNK / HELD
        enough = max(2, many // 64, int(triton.next_power_of_2(math.ceil(threads / 32))))
        warps = min(MOST_WARPS, enough)
    return {
        "C": many, "D": size, "CHUNK": CHUNK, "KIND": kind, "FORM": FORMS[model.form],
        "NORM": model.metric, "UNIT": model.unit_projection, "HAS_SHIFT": has_shift,
        "num_warps": warps,
    }  # fmt: skip


class TritonLearner(CompiledLearner):
    def __init__(self, model: Model, learning: Learning) -> None:
        super().__init__(model, learning)
        device = model.entity.device
        self.gradients = {
            name: torch.zeros_like(table, dtype=torch.int64)
            for name, table in self.tables.items()
            if name not in ("entity", "entity_projection")
        }
        self.rows, self.relations = self.vectors["entity"], self.vectors["relation"]
        self.directions = self.vectors[self.direction] if self.direction else self.relations
        self.shift = self.rows.new_empty(model.entities if self.projection else 1)
        self.owners = {"relation": torch.zeros(model.relations, dtype=torch.int32, device=device)}
        """Row + 1 of each slot of a gradient; 0: no row, and the gradient need not be read."""
        self.compact, self.places = False, 0  # places of a batch that may be as many entities
        if not learning.rows_only:
            self.make_room(model.entities)
        self.rounded: Tensor | None = None
        """Rows rounded to bfloat16, once a refresh has asked for them."""
        self.reload()
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=device)
        self.powers = torch.ones(2, dtype=torch.float64, device=device)  # β₁ᵗ, β₂ᵗ
        self.squares_sum = torch.zeros(2, dtype=torch.int64, device=device)  # of a step's gradients
        self.losses = self.teachings = torch.empty(0, device=device)

    @property
    def steps(self) -> int:
        """The number of steps, from β₂ᵗ: counted on the GPU, where CUDA graphs replay steps."""
        power = max(float(self.powers[1]), 1e-300)  # beyond, the number makes no difference
        return round(math.log(power) / math.log(BETAS[1]))

    @steps.setter
    def steps(self, steps: int) -> None:
        self.powers.copy_(self.betas**steps)

    def reload(self) -> None:
        super().reload()
        if self.projection:
            parts = self.shift, self.rows, self.tables[self.projection]
            for shift, rows, projection in zip(*(p.split(AT_ONCE) for p in parts), strict=True):
                shift.copy_((rows * projection).sum(1))
        if self.rounded is not None:
            self.rounded.copy_(self.rows)

    def is_kept(self, name: str) -> bool:
        """Leave rows of large graphs out of checkpoints: on GPUs the last bit is not promised."""
        return not (self.compact and name == "entity")

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

    def make_room(self, places: int) -> None:
        """Make room for the gradients of a batch's places: a slot for each, or for each entity."""
        entities, slots = self.model.entities, len(self.owners.get("entity", ()))
        self.places = places
        if slots >= (places if self.compact else entities):
            return
        self.compact = self.learning.rows_only and is_compact(entities, places)
        slots = places if self.compact else entities
        self.gradients["entity"] = self.rows.new_zeros(slots, self.rows.shape[1], dtype=torch.int64)
        self.g_shift = self.rows.new_zeros(slots if self.projection else 1, dtype=torch.int64)
        self.owners["entity"] = self.rows.new_zeros(slots, dtype=torch.int32)
        # Of use for compact gradients alone.
        self.slots = self.rows.new_zeros(entities if self.compact else 1, dtype=torch.int32)

    def step(self, batch: Batch, negatives: Contrast, sums: Tensor) -> None:
        assert isinstance(negatives, Negatives)
        self.current()
        if len(batch) > len(self.losses):
            self.losses, self.teachings = (self.rows.new_zeros(len(batch)) for _ in range(2))
        triple, shape = (batch.head, batch.relation, batch.tail), self._shape()
        single = self.is_single(negatives)
        first = len(batch) * (3 if single else 2 + negatives.head.shape[1])
        self.make_room(first + (2 * len(batch) if self.learning.cubes else 0))
        shape["COMPACT"] = self.compact
        if single:
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
                *triple, self.rows, self.relations, *gradients, *self._slots(), first,
                float(self.learning.cubes), **shape,
            )  # fmt: skip
        self._move(len(batch))
        self._finish(len(batch), sums)

    def _finish(self, n: int, sums: Tensor) -> None:
        adam.finish[(1,)](self.losses, self.teachings, self.squares_sum, sums, n, num_warps=8)

    def _add_gradients(
        self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor
    ) -> None:
        count = entity.shape[1]
        share = max(LEAST_SHARE, count * len(batch) // MOST_PROGRAMS)
        candidates.gradients[(len(batch), triton.cdiv(count, share))](
            batch.head, batch.relation, batch.tail, replace_head, entity, slopes.contiguous(),
            count, share, *self._rows_and_gradients(), NORM=self.model.norm,
            COMPACT=self.compact, **self._shape(),
        )  # fmt: skip

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        self.make_room(len(batch) * (1 + entity.shape[1]))
        self._add_gradients(batch, replace_head, entity, slopes)
        self._move(len(batch))

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
        return scoring(self.model, count, self.rows.shape[1], self.kind, bool(self.projection))

    def _rows_and_gradients(self) -> tuple[Tensor, ...]:
        direction = self.gradients[self.direction] if self.direction else self.g_shift
        rows = self.rows, self.shift, self.relations, self.directions
        gradients = self.gradients["entity"], self.g_shift, self.gradients["relation"], direction
        return *rows, *gradients, *self._slots()

    def _slots(self) -> tuple[Tensor, ...]:
        return self.slots, self.owners["entity"], self.owners["relation"]

    def _shape(self) -> dict[str, int]:
        size = self.rows.shape[1]
        block = triton.next_power_of_2(size // 2 if self.kind == COMPLEX else size)
        return {"D": size, "BLOCK": block, "KIND": self.kind, "num_warps": 1}

    def _move(self, n: int) -> None:
        self.powers *= self.betas
        learning, decay = self.learning, self.learning.weight_decay * n
        names = [name for name in self.tables if name in self.gradients]
        for name in names:
            is_entity, size = name == "entity", self.tables[name].shape[1]
            shifted, compact = bool(self.projection) and is_entity, self.compact and is_entity
            rounding = is_entity and self.rounded is not None
            projection = self.projection if shifted else name
            count = self.places if compact else len(self.tables[name])
            at_once = max(1, 1024 // triton.next_power_of_2(size))
            adam.adam[(triton.cdiv(count, at_once),)](
                *self.table_and_moments(name), self.gradients[name], self.vectors[name],
                self.rounded if rounding else self.vectors[name],
                *self.table_and_moments(projection), self.shift, self.g_shift,
                self.slots, self.owners["entity" if is_entity else "relation"],
                self.powers, self.squares_sum, learning.lr, decay,
                count, D=size, BLOCK=triton.next_power_of_2(size), ROWS=at_once,
                UNIT=name in self.unit, SHIFTED=shifted, ROUNDED=rounding,
                ROWS_ONLY=learning.rows_only, LAST=name in ("entity", names[-1]),
                ADAGRAD=learning.adagrad, ONE_NUMBER=learning.one_number, COMPACT=compact,
                num_warps=4,
            )  # fmt: skip
