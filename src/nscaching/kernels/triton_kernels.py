"""The fast path on GPUs: kernels compiled by Triton, and whole steps replayed as CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from nscaching.batches import Batch, Negatives
from nscaching.config import TrainConfig
from nscaching.graph import Side
from nscaching.kernels import random
from nscaching.kernels._base import COIN, ENTITY, SLOT, CacheSide, IsKnown, Kernels, Known, Step
from nscaching.kernels.gpu import forms, rank, refresh, step
from nscaching.kernels.learner import BETAS, Learner, Learning
from nscaching.models import Form, Model
from nscaching.models.complex import ComplEx
from nscaching.models.distmult import DistMult
from nscaching.models.transd import TransD
from nscaching.models.transe import TransE
from nscaching.models.transh import TransH
from nscaching.objectives import LOGISTIC_ZERO

__all__ = ["INTERPRETED", "TritonKernels", "TritonLearner"]

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs kernels in Python, on the CPU, which is for tests."""

FORMS = {Form.DOT: 0, Form.DISTANCE: 1, Form.SHIFTED: 2}
STRATEGIES = {"importance": 0, "top": 1, "uniform": 2}
KINDS: dict[type[Model], int] = {
    DistMult: forms.DISTMULT.value,
    ComplEx: forms.COMPLEX.value,
    TransE: forms.TRANSE.value,
    TransH: forms.TRANSH.value,
    TransD: forms.TRANSD.value,
}
# Tables of relations by which rows are shifted.
DIRECTIONS = {TransH: "normal", TransD: "relation_projection"}
UNIT = {
    TransE: ("entity",),
    TransH: ("entity", "relation", "normal"),
    TransD: ("entity", "relation"),
}
PURPOSES = 7
# Partial sums of squares that one program adds up by itself.
MOST_PARTIAL = 8192
# Numbers of the candidates' rows that a refresh holds at once; more warps or longer pieces were
# slower on an H200.
CHUNK = 16


class TritonLearner(Learner):
    """Gradient steps of the models whose gradients are compiled; keeps their rows ready."""

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning, self.kind = model, learning, KINDS[type(model)]
        device = model.entity.device
        self.tables = {name: table.detach() for name, table in model.named_parameters()}
        self.means = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.squares = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.unit = UNIT.get(type(model), ())
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
        self.direction = DIRECTIONS.get(type(model), "")
        self.directions = self.ready[self.direction] if self.direction else self.relations
        self.projection = "entity_projection" if isinstance(model, TransD) else ""
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

    def reload(self) -> None:
        """Make all rows ready anew."""
        for name in self.unit:
            self.ready[name].copy_(F.normalize(self.tables[name]))
        if self.projection:
            self.shift.copy_((self.rows * self.tables[self.projection]).sum(1))
        if self.rounded is not None:
            self.rounded.copy_(self.rows)

    def rounded_rows(self) -> Tensor:
        """Return the ready rows in bfloat16; from now on each step keeps them so."""
        if self.rounded is None:
            self.rounded = self.rows.bfloat16()
        return self.rounded

    def step(self, batch: Batch, negatives: Negatives, sums: Tensor) -> None:
        """Learn from a batch with one negative per triple, of which one side was replaced."""
        n, size = len(batch), self.rows.shape[1]
        if n > len(self.losses):
            self.losses, self.teachings = (self.rows.new_empty(n) for _ in range(2))
        logistic = self.learning.objective == "logistic"
        direction = self.gradients[self.direction] if self.direction else self.g_shift
        width = size // 2 if self.kind == forms.COMPLEX.value else size
        step.gradients[(n,)](
            batch.head, batch.relation, batch.tail, negatives.head, negatives.tail,
            self.rows, self.shift, self.relations, self.directions,
            self.gradients["entity"], self.g_shift, self.gradients["relation"], direction,
            *self.touched.values(), self.losses, self.teachings,
            float(self.learning.margin), LOGISTIC_ZERO,
            D=size, BLOCK=triton.next_power_of_2(width), KIND=self.kind, NORM=self.model.norm,
            LOGISTIC=logistic, num_warps=1,
        )  # fmt: skip
        self.powers *= self.betas
        first, last = 0, list(self.programs)[-1]
        for name, programs in self.programs.items():
            shifted = bool(self.projection) and name == "entity"
            rounding = name == "entity" and self.rounded is not None
            projection = self.projection if shifted else name
            step.adam[(programs,)](
                *self._state(name), self.gradients[name], self.ready[name],
                self.rounded if rounding else self.ready[name],
                *self._state(projection), self.shift, self.g_shift,
                self.touched["entity" if name == "entity" else "relation"],
                self.powers, self.partial, first, self.learning.lr, self.learning.weight_decay,
                len(self.tables[name]), D=size, BLOCK=self.block, ROWS=self.at_once,
                UNIT=name in self.unit, SHIFTED=shifted, ROUNDED=rounding,
                ROWS_ONLY=self.learning.rows, LAST=name in ("entity", last), num_warps=4,
            )  # fmt: skip
            first += programs
        partial = self.partial
        if len(partial) > MOST_PARTIAL:
            partial = partial.sum(0, dtype=torch.float64, keepdim=True)
        step.finish[(1,)](self.losses, self.teachings, partial, sums, n, len(partial), num_warps=8)

    def _state(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        return self.tables[name], self.means[name], self.squares[name]


class TritonKernels(Kernels):
    """Compiled twins of the hot operations; what has none runs on the reference path."""

    name = "triton"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self._learner: TritonLearner | None = None
        self._seeds: dict[int, Tensor] = {}
        self._owners: dict[Side, Tensor] = {}

    def try_out(self, device: torch.device) -> None:
        """Compile and run a small kernel; raises whatever goes wrong, such as no C compiler."""
        columns = torch.arange(6, device=device).reshape(2, 3)
        if self.gather(columns, columns[0, 1:]).tolist() != [[1, 2], [4, 5]]:
            raise RuntimeError("a kernel gave a wrong result")

    def learner(self, model: Model, learning: Learning) -> Learner:
        """Return a compiled learner where there is one."""
        if type(model) not in KINDS or model.entity.dtype != torch.float32:
            return super().learner(model, learning)
        self._learner = TritonLearner(model, learning)
        return self._learner

    def capture(self, step: Step, phase: Callable[[], object] | None) -> Step:
        """Replay steps as CUDA graphs, one for each size of a batch and phase."""
        if phase is None or INTERPRETED:
            return step
        return Replay(step, phase)

    def seeds(self, seed: int, device: torch.device) -> Tensor:
        """Return the starts [PURPOSES] of the random numbers of each purpose, before the tick."""
        if seed not in self._seeds:
            purpose = torch.arange(PURPOSES, device=device)
            self._seeds[seed] = random.mix((seed * random.STEP_SEED + purpose) & random.MASK)
        return self._seeds[seed]

    def gather(self, columns: Tensor, row: Tensor) -> Tensor:
        """Return the columns [k, n] at some rows [B]: [k, B]."""
        (k, n), rows, block = columns.shape, len(row), 256
        out = columns.new_empty(k, rows)
        grid = (triton.cdiv(rows, block), k)
        refresh.gather[grid](columns, row, out, n, rows, BLOCK=block)
        return out

    def draw(
        self,
        batch: Batch,
        chance: Tensor,
        entities: int,
        seed: int,
        tick: Tensor,
        caches: Sequence[Tensor] = (),
    ) -> tuple[Negatives, Tensor]:
        """Draw a negative for each triple, all in one kernel."""
        n, block = len(batch), 128
        head, tail = torch.empty_like(batch.head), torch.empty_like(batch.tail)
        replace_head = torch.empty(n, dtype=torch.bool, device=head.device)
        ids = caches or [head, head]
        refresh.draw[(triton.cdiv(n, block),)](
            batch.head, batch.relation, batch.tail, chance,
            batch.head_key, batch.tail_key, *ids,
            self.seeds(seed, tick.device), tick, head, tail, replace_head, n, entities,
            N1=ids[0].shape[1] if caches else 1, CACHED=bool(caches),
            COIN=COIN, ENTITY=ENTITY, SLOT=SLOT, BLOCK=block, num_warps=4,
        )  # fmt: skip
        return Negatives(head.unsqueeze(1), tail.unsqueeze(1)), replace_head

    @torch.no_grad()
    def refresh(
        self,
        sides: Sequence[CacheSide],
        keys: Sequence[Tensor],
        model: Model,
        config: TrainConfig,
        seed: int,
        tick: Tensor,
        is_known: IsKnown | None = None,
    ) -> None:
        """Refresh the keys of each side in place, one program per key."""
        if model.form is None or is_known is not None:
            super().refresh(sides, keys, model, config, seed, tick, is_known)
            return
        learner = self._learner if self._learner and self._learner.model is model else None
        bfloat16 = config.candidate_rows == "bfloat16"
        if learner is not None:
            rows = learner.rounded_rows() if bfloat16 else learner.rows
            tables = (learner.rows, learner.relations, learner.directions, learner.shift)
            kind, has_shift = learner.kind, bool(learner.projection)
        else:
            rows = model.table()
            shift = None
            if model.form is Form.SHIFTED:
                shift = model.entity_shift(torch.arange(model.entities, device=rows.device))
            tables = (rows, rows, rows, rows if shift is None else shift)
            kind, has_shift = forms.GIVEN.value, shift is not None
            rows = rows.bfloat16() if bfloat16 else rows
        size, many = rows.shape[1], triton.next_power_of_2(config.n1 + config.n2)
        warps = max(2 if model.form is Form.SHIFTED else 4, many // 64)
        for cache, key in zip(sides, keys, strict=True):
            owner, n = self._owner(cache), len(key)
            query = direction = rows
            if learner is None:
                # Of a key −1 any query will do: it is not used.
                anchor, relation = cache.anchor[key.clamp(min=0)], cache.relation[key.clamp(min=0)]
                query = model.query(cache.side, anchor, relation)
                if model.form is Form.SHIFTED:
                    direction = model.direction(relation).contiguous()
            refresh.claim[(triton.cdiv(n, 256),)](key, owner, n, BLOCK=256)
            refresh.refresh[(n,)](
                key, owner, cache.ids, cache.anchor, cache.relation,
                self.seeds(seed, tick.device), tick, rows, *tables, query, direction,
                model.entities, float(config.temperature),
                -1.0 if cache.side is Side.HEAD else 1.0, N1=config.n1, N2=config.n2,
                C=many, D=size, CHUNK=CHUNK,
                KIND=kind, FORM=FORMS[model.form],
                NORM=model.norm, UNIT=model.unit_projection, HAS_SHIFT=has_shift,
                STRATEGY=STRATEGIES[config.refresh], SHARED=config.shared_candidates,
                DISTINCT=config.candidates == "set", FRESH=cache.fresh, NOISE=cache.noise,
                num_warps=warps,
            )  # fmt: skip

    def _owner(self, cache: CacheSide) -> Tensor:
        keys = len(cache.ids)
        if len(self._owners.get(cache.side, ())) < keys:
            self._owners[cache.side] = torch.empty(keys, dtype=torch.int32, device=cache.ids.device)
        return self._owners[cache.side]

    def score_all(self, model: Model, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score every entity as the answer: anchor [n], relation [n] → [n, |E|]."""
        if model.form is not Form.SHIFTED or model.entity.dtype != torch.float32:
            return super().score_all(model, side, anchor, relation)
        query, rows, direction = (
            model.query(side, anchor, relation),
            model.table(),
            model.direction(relation),
        )
        shift = model.entity_shift(torch.arange(model.entities, device=rows.device))
        # Every relation shifts every row: how far, and to which length, follows from products.
        along = direction @ rows.T  # v·e [n, E]
        n, entities, (queries, at_once) = len(query), len(rows), (32, 128)
        grid = (triton.cdiv(entities, at_once), triton.cdiv(n, queries))
        rank.shifted_distances[grid](
            query.T.contiguous(), direction.T.contiguous(), rows.T.contiguous(), along,
            rows.square().sum(1), direction.square().sum(1), along if shift is None else shift,
            n, entities, D=query.shape[1], NORM=model.norm, UNIT=model.unit_projection,
            HAS_SHIFT=shift is not None, QUERIES=queries, ROWS=at_once, num_warps=8,
        )  # fmt: skip
        return along

    def distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return ‖q − e‖ [n, E] of all queries [n, D] and rows [E, D]."""
        if query.dtype != torch.float32:
            return super().distances(query, rows, norm)
        n, entities, (queries, at_once) = len(query), len(rows), (64, 128)
        out = query.new_empty(n, entities)
        grid = (triton.cdiv(entities, at_once), triton.cdiv(n, queries))
        rank.distances[grid](
            query.T.contiguous(), rows.T.contiguous(), out, n, entities,
            D=query.shape[1], NORM=norm, QUERIES=queries, ROWS=at_once, num_warps=8,
        )  # fmt: skip
        return out

    def count(self, scores: Tensor, answer: Tensor, known: Known | None) -> Tensor:
        """Count in each row of scores [n, E] what is above the answer [n], level with it, wrong."""
        if scores.dtype != torch.float32:
            return super().count(scores, answer, known)
        n, entities = scores.shape
        out = torch.empty(3, n, dtype=torch.int64, device=scores.device)
        runs: Any = (answer, answer, answer)
        if known is not None:
            runs = (known.start, known.end, known.answers)
        rank.count[(n,)](
            scores, answer, *runs, out, n, entities,
            FILTERED=known is not None, BLOCK=1024, num_warps=4,
        )  # fmt: skip
        return out


class Replay:
    """A step as CUDA graphs: launching its kernels one by one takes longer than running them.

    The first step of its kind runs as it is, which compiles its kernels; the second is recorded.
    """

    def __init__(self, step: Step, phase: Callable[[], object]) -> None:
        self.step, self.phase = step, phase
        self.rows: dict[int, Tensor] = {}
        self.graphs: dict[tuple[int, object], torch.cuda.CUDAGraph | None] = {}

    def __call__(self, rows: Tensor) -> None:
        """Run a step on the rows [B] of a batch."""
        phase = self.phase()
        if phase is None:
            self.step(rows)
            return
        # The graph reads the rows where the recorded step read them.
        here = self.rows.setdefault(len(rows), torch.empty_like(rows))
        here.copy_(rows)
        kind = (len(rows), phase)
        if kind not in self.graphs:
            self.graphs[kind] = None
            self.step(here)
            return
        graph = self.graphs[kind]
        if graph is None:
            graph = self.graphs[kind] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step(here)
        graph.replay()
