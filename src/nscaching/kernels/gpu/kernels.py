"""The fast path on GPUs: kernels compiled by Triton, and whole steps replayed as CUDA graphs."""

import gc
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import CacheAccess, CacheSide
from nscaching.kernels.codes import STRATEGIES
from nscaching.kernels.compiled import CompiledKernels, shift_of
from nscaching.kernels.gpu import draw, forms, rank, refresh, softmax
from nscaching.kernels.gpu.learner import TritonLearner, scoring
from nscaching.kernels.gpu.random import fill
from nscaching.kernels.gpu.softmax_learner import TritonSoftmax
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import Step
from nscaching.models import MODULI, Form, Model

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs kernels in Python, on the CPU, which is for tests."""


MANY_PAIRS = 1 << 23
"""Pairs of queries and entities from which on large tiles use all of a GPU."""


class Stopwatch:
    """Listens to Triton, after an earlier listener; adds up the seconds of compiling or loading."""

    def __init__(self, knobs: Any) -> None:
        self.seconds = 0.0
        self.earlier, knobs.compilation.listener = knobs.compilation.listener, self

    def __call__(self, **event: Any) -> None:
        self.seconds += event["times"].total / 1e6  # of one kernel, in microseconds
        if self.earlier is not None:
            self.earlier(**event)


# From Triton 3.4 on; before, the seconds stay in the first epoch.
COMPILING = Stopwatch(triton.knobs) if hasattr(triton, "knobs") else None


class Replay:
    """A step as CUDA graphs: launching its kernels one by one takes longer than running them.

    The first step of its kind runs as it is, which compiles its kernels; the second is recorded.
    """

    def __init__(self, step: Step, phase: Callable[[], object]) -> None:
        self.step, self.phase = step, phase
        self.rows: dict[int, Tensor] = {}
        self.graphs: dict[tuple[int, object], torch.cuda.CUDAGraph | None] = {}
        # Recording must not wait for another stream, such as one in autograd's memory.
        self.stream = torch.cuda.Stream()

    def __call__(self, rows: Tensor) -> None:
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
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(here)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        graph = self.graphs[kind]
        if graph is None:
            graph = self.graphs[kind] = self._record(here)
        graph.replay()

    def _record(self, rows: Tensor) -> torch.cuda.CUDAGraph:
        # Freeing the graphs of an earlier training during the recording would spoil this graph.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU during the recording, as for a snapshot of the cache.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.step(rows)
        finally:
            if collects:
                gc.enable()
        return graph


class TritonKernels(CompiledKernels[TritonLearner]):
    name = "triton"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self._seeds: dict[int, Tensor] = {}
        self._owners: dict[Side, Tensor] = {}

    def try_out(self, device: torch.device) -> None:
        """Compile and run a small kernel; raises whatever goes wrong, such as no C compiler."""
        columns = torch.arange(6, device=device).reshape(2, 3)
        if self.gather(columns, columns[0, 1:]).tolist() != [[1, 2], [4, 5]]:
            raise RuntimeError("a kernel gave a wrong result")

    def compile_seconds(self) -> float:
        return COMPILING.seconds if COMPILING else 0.0

    def new_learner(self, model: Model, learning: Learning) -> TritonLearner:
        return TritonLearner(model, learning)

    def new_softmax_learner(self, model: Model, learning: Learning) -> TritonLearner:
        return TritonSoftmax(model, learning, self)

    def capture(self, step: Step, phase: Callable[[], object] | None) -> Step:
        return step if phase is None or INTERPRETED else Replay(step, phase)

    def seeds(self, seed: int, device: torch.device) -> Tensor:
        """Return the starts [purposes] of the random numbers of each purpose, before the tick."""
        if seed not in self._seeds:
            purpose = torch.arange(random.PURPOSES, device=device)
            start = (seed * random.STEP_SEED) & random.MASK  # of any size, before it is a tensor's
            self._seeds[seed] = random.mix((start + purpose) & random.MASK)
        return self._seeds[seed]

    def gather(self, columns: Tensor, row: Tensor) -> Tensor:
        (k, n), rows, block = columns.shape, len(row), 256
        out = columns.new_empty(k, rows)
        draw.gather[(triton.cdiv(rows, block), k)](columns, row, out, n, rows, BLOCK=block)
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
        if count > 1:
            return super().draw(batch, chance, entities, seed, tick, caches, count)
        n, block = len(batch), 128
        head, tail = torch.empty_like(batch.head), torch.empty_like(batch.tail)
        replace_head = torch.empty(n, dtype=torch.bool, device=head.device)
        ids = caches or [head, head]
        draw.draw[(triton.cdiv(n, block),)](
            batch.head, batch.relation, batch.tail, chance,
            batch.head_key, batch.tail_key, *ids,
            self.seeds(seed, tick.device), tick, head, tail, replace_head, n, entities,
            N1=ids[0].shape[1] if caches else 1, CACHED=bool(caches),
            COIN=random.COIN, ENTITY=random.ENTITY, SLOT=random.SLOT, BLOCK=block, num_warps=4,
        )  # fmt: skip
        return Negatives(head.unsqueeze(1), tail.unsqueeze(1), replace_head)

    def tail(self, entities: int, count: int, seed: int, tick: Tensor) -> Tensor:
        if count >= entities:
            return super().tail(entities, count, seed, tick)
        out, block = torch.empty(count, dtype=torch.int64, device=tick.device), 128
        softmax.tail[(triton.cdiv(count, block),)](
            self.seeds(seed, tick.device), tick, out, entities, count, entities // count,
            PURPOSE=random.TAIL, BLOCK=block,
        )  # fmt: skip
        return out

    def bits(self, purpose: int, seed: int, tick: Tensor, rows: int, count: int = 1) -> Tensor:
        size, block = rows * count, 1024
        out = torch.empty(rows, count, dtype=torch.int64, device=tick.device)
        fill[(triton.cdiv(size, block),)](
            self.seeds(seed, tick.device), tick, out, size, count, PURPOSE=purpose, BLOCK=block
        )
        return out

    def reward(self, model: Model, batch: Batch, negatives: Negatives) -> Tensor:
        learner = self.learner_of(model)
        if learner is None or negatives.replace_head is None:
            return super().reward(model, batch, negatives)
        return learner.scores(batch, negatives.replace_head, negatives.entity)

    @torch.no_grad()
    def draw_by_score(
        self, batch: Batch, replace_head: Tensor, asked: CacheAccess, count: int = 1
    ) -> Negatives:
        n1, strategy = asked.settings.n1, asked.settings.draw
        learner = self.learner_of(asked.model)
        if learner is None or count > 1 or strategy == "uniform":
            return super().draw_by_score(batch, replace_head, asked, count)
        caches = {cache.side: cache.ids for cache in asked.sides}
        entity = torch.empty_like(batch.head)
        draw.draw_by_score[(len(batch),)](
            batch.head, batch.relation, batch.tail, replace_head, batch.head_key, batch.tail_key,
            caches[Side.HEAD], caches[Side.TAIL], self.seeds(asked.seed, asked.tick.device),
            asked.tick, learner.rows, learner.relations, learner.directions, learner.shift, entity,
            N1=n1, STRATEGY=STRATEGIES[strategy], SLOT=random.SLOT, **learner.scoring(n1),
        )  # fmt: skip
        return batch.corrupt(replace_head, entity, entity)

    def refresh_compiled(self, asked: CacheAccess, learner: TritonLearner | None) -> None:
        model, settings, seed, tick = asked.model, asked.settings, asked.seed, asked.tick
        rounded, count = settings.candidate_rows == "bfloat16", settings.n1 + settings.n2
        if learner is not None:
            rows = learner.rounded_rows() if rounded else learner.rows
            tables = (learner.rows, learner.relations, learner.directions, learner.shift)
            shape = learner.scoring(count)
        else:
            rows, shift = model.table(), shift_of(model)
            tables = (rows, rows, rows, rows if shift is None else shift)
            shape = scoring(model, count, rows.shape[1], forms.GIVEN.value, shift is not None)
            rows = rows.bfloat16() if rounded else rows
        for cache, key in zip(asked.sides, asked.keys, strict=True):
            owner, n = self.owner(cache), len(key)
            query = direction = rows
            weight = None
            if learner is None:
                # The query of a key −1 is not used: any value works.
                anchor, relation = cache.anchor[key.clamp(min=0)], cache.relation[key.clamp(min=0)]
                query = model.query(cache.side, anchor, relation).contiguous()
                if model.form is Form.SHIFTED:
                    direction = model.direction(relation).contiguous()
                weight = model.weight_of(relation)
            refresh.claim[(triton.cdiv(n, 256),)](key, owner, n, 0, BLOCK=256)
            refresh.refresh[(n,)](
                key, owner, cache.ids, cache.anchor, cache.relation,
                self.seeds(seed, tick.device), tick, rows, *tables, query, direction,
                rows if weight is None else weight, model.entities, float(settings.temperature),
                -1.0 if cache.side is Side.HEAD else 1.0, N1=settings.n1, N2=settings.n2,
                HAS_WEIGHT=weight is not None, STRATEGY=STRATEGIES[settings.refresh],
                SHARED=settings.shared_candidates, DISTINCT=settings.candidates == "set",
                FRESH=random.FRESH[cache.side], NOISE=random.NOISE[cache.side], **shape,
            )  # fmt: skip

    def owner(self, cache: CacheSide) -> Tensor:
        """Return memory [keys] in which the positions of a batch claim their keys."""
        keys = len(cache.ids)
        if len(self._owners.get(cache.side, ())) < keys:
            self._owners[cache.side] = torch.empty(keys, dtype=torch.int32, device=cache.ids.device)
        return self._owners[cache.side]

    def new_elements(self, ids: Tensor, keys: Tensor, before: Tensor, out: Tensor) -> None:
        n, n1 = before.shape
        many = max(2, triton.next_power_of_2(n1))
        refresh.new_elements[(n,)](ids, keys, before, out, n1, C=many)

    def score_all(self, model: Model, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        if model.form is not Form.SHIFTED or model.entity.dtype != torch.float32:
            return super().score_all(model, side, anchor, relation)
        side, relation = model.asked(side, relation)
        query, direction = model.query(side, anchor, relation), model.direction(relation)
        rows, shift = model.table(), shift_of(model)
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
        weight = model.weight_of(relation)
        return along if weight is None else along.mul_(weight.unsqueeze(1))

    def pair_distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        query, rows = query.detach(), rows.detach()
        n, entities = len(query), len(rows)
        # Small tiles where large ones would leave multiprocessors idle.
        queries, at_once = (64, 128) if n * entities > MANY_PAIRS else (32, 32)
        out = query.new_empty(n, entities)
        grid = (triton.cdiv(entities, at_once), triton.cdiv(n, queries))
        rank.distances[grid](
            query.T.contiguous(), rows.T.contiguous(), out, n, entities,
            D=query.shape[1], NORM=norm, QUERIES=queries, ROWS=at_once,
            num_warps=8 if at_once > 32 else 4,
        )  # fmt: skip
        return out

    def slopes(self, weight: Tensor, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        n, entities = len(query), len(rows)
        queries, at_once = (16, 512) if n * entities > MANY_PAIRS else (8, 64)
        parts = triton.cdiv(entities, at_once)
        out = query.new_empty(parts, *query.shape)
        size = query.shape[1] // 2 if norm == MODULI else query.shape[1]
        rank.slopes[(triton.cdiv(n, queries), parts)](
            weight.T.contiguous(), query.detach().contiguous(), rows.detach().contiguous(), out,
            n, entities, D=query.shape[1], BLOCK=triton.next_power_of_2(size), NORM=norm,
            QUERIES=queries, ROWS=at_once, num_warps=4,
        )  # fmt: skip
        return out.sum(0)

    def count_to(self, out: Tensor, scores: Tensor, answer: Tensor, known: Known) -> None:
        n, entities = scores.shape
        ranges = known.start, known.end, known.answers
        rank.count[(n,)](scores, answer, *ranges, out, n, entities, BLOCK=1024, num_warps=4)
