"""The fast path on GPUs: kernels compiled by Triton, and whole steps replayed as CUDA graphs."""

import os
from collections.abc import Callable, Sequence

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
from nscaching.kernels.gpu.replay import COMPILING, Replay
from nscaching.kernels.gpu.softmax_learner import TritonSoftmax
from nscaching.kernels.gpu.standing import fused_tile, is_fused, stand_fused
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import Step
from nscaching.kernels.standing import Asked, Tile
from nscaching.models import MODULI, Form, Model

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs kernels in Python, on the CPU, which is for tests."""


MANY_PAIRS = 1 << 23
"""Pairs of queries and entities from which on large tiles use all of a GPU."""


def _reaches(rows: Tensor, row: Tensor) -> bool:
    """Say whether kernels on the device of ``row`` reach rows that may be in host memory."""
    return INTERPRETED or (row.is_cuda and (rows.is_cuda or rows.is_pinned()))


class TritonKernels(CompiledKernels[TritonLearner]):
    name = "triton"

    def __init__(self, reason: str = "asked for") -> None:
        super().__init__(reason)
        self._seeds: dict[int, Tensor] = {}
        self._owners: dict[Side, Tensor] = {}

    def try_out(self, device: torch.device) -> None:
        """Compile and run a small kernel; raises whatever goes wrong, such as no C compiler."""
        columns = torch.arange(3, dtype=torch.int32, device=device).unsqueeze(0)
        rows, found = self.take(columns, 0, torch.tensor(0, device=device), 3).tolist()
        if rows != found or sorted(rows) != [0, 1, 2]:
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

    def take(self, columns: Tensor, seed: int, taken: Tensor, size: int) -> Tensor:
        (k, n), block = columns.shape, 128
        out = torch.empty(1 + k, size, dtype=torch.int64, device=columns.device)
        draw.take[(triton.cdiv(size, block),)](
            columns, self.seeds(seed, columns.device), taken, out, n, random.grid_width(n), size,
            COLUMNS=k, PURPOSE=random.ORDER, BLOCK=block,
        )  # fmt: skip
        taken += size
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

    def sample(self, below: int, count: int, seed: int, number: Tensor) -> Tensor:
        block = 256
        out = torch.empty(len(number), count, dtype=torch.int64, device=number.device)
        draw.sample[(len(number), triton.cdiv(count, block))](
            self.seeds(seed, number.device), number, out, below, random.grid_width(below), count,
            PURPOSE=random.RIVAL, BLOCK=block,
        )  # fmt: skip
        return out

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
                key, cache.numbers(key), owner, cache.ids, cache.anchor, cache.relation,
                self.seeds(seed, tick.device), tick, rows, *tables, query, direction,
                rows if weight is None else weight, model.entities, float(settings.temperature),
                -1.0 if cache.side is Side.HEAD else 1.0, N1=settings.n1, N2=settings.n2,
                HAS_WEIGHT=weight is not None, STRATEGY=STRATEGIES[settings.refresh],
                SHARED=settings.shared_candidates, DISTINCT=settings.candidates == "set",
                FRESH=random.FRESH[cache.side], NOISE=random.NOISE[cache.side], **shape,
            )  # fmt: skip

    def take_rows(self, rows: Tensor, row: Tensor) -> Tensor:
        if not _reaches(rows, row):
            return super().take_rows(rows, row)
        (count,), n1 = row.shape, rows.shape[1]
        out = torch.empty(count, n1, dtype=rows.dtype, device=row.device)
        draw.take_rows[(count,)](rows, row, out, n1, C=triton.next_power_of_2(n1), num_warps=1)
        return out

    def put_rows(self, rows: Tensor, row: Tensor, copies: Tensor, last: Tensor) -> None:
        if not _reaches(rows, row):
            super().put_rows(rows, row, copies, last)
            return
        n1 = rows.shape[1]
        given = rows, row, copies, last, n1
        draw.put_rows[(len(row),)](*given, C=triton.next_power_of_2(n1), num_warps=1)

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

    def tile(self, model: Model, budget: int) -> Tile:
        return fused_tile(model) if is_fused(model) else super().tile(model, budget)

    def stand(self, model: Model, side: Side, asked: Asked, width: int) -> Tensor:
        if is_fused(model):
            return stand_fused(model, side, asked, width)
        return super().stand(model, side, asked, width)

    def score_all(
        self,
        model: Model,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        entities: Tensor | None = None,
    ) -> Tensor:
        if model.form is not Form.SHIFTED or model.entity.dtype != torch.float32:
            return super().score_all(model, side, anchor, relation, entities)
        side, relation = model.asked(side, relation)
        query, direction = model.query(side, anchor, relation), model.direction(relation)
        some = torch.arange(model.entities, device=anchor.device) if entities is None else entities
        rows, shift = model.entity_rows(some), model.entity_shift(some)
        # Every relation shifts every row: how far, and to which length, follows from products.
        along = direction @ rows.T  # v·e [n, E]
        n, width, (queries, at_once) = len(query), len(rows), (32, 128)
        grid = (triton.cdiv(width, at_once), triton.cdiv(n, queries))
        rank.shifted_distances[grid](
            query.T.contiguous(), direction.T.contiguous(), rows.T.contiguous(), along,
            rows.square().sum(1), direction.square().sum(1), along if shift is None else shift,
            n, width, D=query.shape[1], NORM=model.norm, UNIT=model.unit_projection,
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

    def count_to(
        self, out: Tensor, scores: Tensor, answer: Tensor, target: Tensor, known: Known, first: int
    ) -> None:
        (n, entities), ranges = scores.shape, (known.start, known.end, known.answers)
        rank.count[(n,)](
            scores, answer, target, *ranges, out, n, entities, first, BLOCK=1024, num_warps=4
        )
