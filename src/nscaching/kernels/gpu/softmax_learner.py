"""Steps of the cached softmax on GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import random
from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import Rivals
from nscaching.kernels.codes import FORMS, GIVEN, STRATEGIES
from nscaching.kernels.gpu import queries, refresh, softmax, softmax_back
from nscaching.kernels.gpu.learner import TritonLearner, scoring
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.products import largest_error, rounded_products
from nscaching.kernels.queries import Asked, TakeBack
from nscaching.kernels.softmax_step import NEGLIGIBLE, SoftmaxStep
from nscaching.models import MODULI, Form, Model

if TYPE_CHECKING:
    from nscaching.kernels.gpu.kernels import TritonKernels

MOST_TAIL = 1 << 16  # entities that a program weighs at once
SHARE = 32  # places of candidates that a program adds up


def distances_of(products: Tensor, query: Tensor, rows: Tensor) -> Tensor:
    """Return ‖q − e‖ [n, K] of queries [n, D] and rows [K, D], by their products q·e [n, K].

    Small distances, which are lost to rounding, are replaced by the error: a tail has few of them.
    """
    sizes = query.square().sum(1, keepdim=True) + rows.square().sum(1)
    return torch.maximum(sizes - 2 * products, largest_error() * sizes).clamp_(min=1e-30).sqrt_()


class TritonSoftmax(SoftmaxStep, TritonLearner):
    def __init__(self, model: Model, learning: Learning, kernels: TritonKernels) -> None:
        super().__init__(model, learning)
        self.kernels = kernels

    def ask(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        ends, tables = (asked.anchor, asked.relation), (self.rows, self.relations)
        query = self.rows.new_empty(len(asked.anchor), self.rows.shape[1])
        grid, shape = (len(query),), self._shape()
        queries.ask[grid](*ends, *tables, query, asked.of_heads, **shape)

        def take_back(by_query: Tensor) -> None:
            gradients = self.gradients["entity"], self.gradients["relation"]
            queries.ask_back[grid](
                *ends, by_query, *tables, *gradients, *self._slots(),
                float(self.learning.cubes), asked.of_heads, COMPACT=self.compact, **shape,
            )  # fmt: skip

        return query, take_back

    def contrast(
        self, asked: Asked, query: Tensor, rivals: Rivals, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        if len(rivals.tail) > MOST_TAIL:
            most = f"at most {MOST_TAIL:,} on a GPU; {flag('objective')} 1vsall takes all entities"
            raise UserError(f"{flag('tail')} {len(rivals.tail)}: {most}")
        (n, size), form, metric = query.shape, FORMS[self.model.form], self.model.metric
        caches = [query.new_empty(1, 0, dtype=torch.int32)] * 2
        keys = [asked.answer] * 2
        if rivals.cache is not None:
            caches, keys = [side.ids for side in rivals.cache.sides], list(rivals.cache.keys)
        n1 = caches[0].shape[1]
        near, count = self._walk(asked.anchor, rivals), 1 + n1 + rivals.walks
        # Places: anchors, the tail, candidates.
        begin = n + len(rivals.tail)
        self.make_room(begin + n * count)
        candidates = torch.empty(n, count, dtype=torch.int32, device=query.device)
        slopes, losses = query.new_empty(n, count), query.new_empty(n)
        softmax.head[(n,)](
            asked.answer, *keys, *caches, near, query, self.rows, candidates, slopes, n // 2,
            N1=n1, NEAR=rivals.walks, **scoring(self.model, count, size, GIVEN, has_shift=False),
        )  # fmt: skip
        tail = self.rows[rivals.tail]
        if self.model.form is Form.DISTANCE and metric != 2:
            with torch.enable_grad():
                ends = query.requires_grad_(), tail.requires_grad_()
                scores = -self.kernels.distances(*ends, metric)
            tail_slopes = scores.detach().clone()
            self._weigh(asked, rivals, candidates, slopes, tail_slopes, losses)
            by_query, by_tail = torch.autograd.grad(scores, ends, tail_slopes)
        else:
            with rounded_products(query.device):
                tail_slopes = query @ tail.T
                if self.model.form is Form.DISTANCE:
                    lengths = distances_of(tail_slopes, query, tail)
                    tail_slopes = -lengths
                self._weigh(asked, rivals, candidates, slopes, tail_slopes, losses)
                if self.model.form is Form.DISTANCE:
                    tail_slopes /= lengths  # −∂‖q − e‖/∂q = (e − q) / ‖q − e‖
                by_query, by_tail = tail_slopes @ tail, tail_slopes.T @ query
            if self.model.form is Form.DISTANCE:
                by_query -= tail_slopes.sum(1, keepdim=True) * query
                by_tail -= tail_slopes.sum(0).unsqueeze(1) * tail
        pairs = self.model.form is Form.DISTANCE and metric == MODULI
        block = triton.next_power_of_2(size // 2 if pairs else size)
        shape = {
            "COUNT": count, "D": size, "BLOCK": block, "FORM": form, "NORM": metric,
            "num_warps": max(1, block // 1024),
        }  # fmt: skip
        softmax_back.meet_back[(n,)](query, candidates, slopes, self.rows, by_query, T=4, **shape)
        entity, place = self._sorted(candidates)
        softmax_back.rows_back[(triton.cdiv(len(place), SHARE),)](
            query, entity, place, slopes, self.rows, self.gradients["entity"],
            self.slots, self.owners["entity"], begin, len(place), SHARE=SHARE,
            COMPACT=self.compact, **shape,
        )  # fmt: skip
        self.add_rows("entity", rivals.tail, by_tail, first=n)
        return losses, by_query

    def _walk(self, anchor: Tensor, rivals: Rivals) -> Tensor:
        """Return entities [2B, M] near the anchors, as ``Rivals.near`` does."""
        cache, nearby, count = rivals.cache, rivals.nearby, rivals.walks
        near = torch.empty(len(anchor), count, dtype=torch.int32, device=anchor.device)
        if cache is not None and nearby is not None:
            caches = [side.ids for side in cache.sides]
            n1 = caches[0].shape[1]
            softmax.walk[(len(anchor),)](
                anchor, *cache.keys, *cache.numbers(), *caches, *nearby.graph,
                self.kernels.seeds(cache.seed, anchor.device), cache.tick, near, len(anchor) // 2,
                N1=n1, C=triton.next_power_of_2(n1), NEAR=count,
                BLOCK=triton.next_power_of_2(count), HEAD_WALK=random.WALK[Side.HEAD],
                TAIL_WALK=random.WALK[Side.TAIL],
            )  # fmt: skip
        return near

    def _sorted(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Return candidates in ascending order, and their places; short ids take half as long."""
        if self.model.entities > 1 << 16:
            entity, place = candidates.view(-1).sort(stable=True)
            return entity, place
        short, place = (candidates - (1 << 15)).short().view(-1).sort(stable=True)
        return short.int() + (1 << 15), place

    def _weigh(
        self, asked: Asked, rivals: Rivals, candidates: Tensor, slopes: Tensor,
        tail_slopes: Tensor, losses: Tensor,
    ) -> None:  # fmt: skip
        """Write losses and slopes, in place of the scores, and refresh the cache."""
        (n, columns), tail, cache = candidates.shape, rivals.tail, rivals.cache
        n1 = columns - 1 - rivals.walks
        refreshing = cache is not None and rivals.refreshing
        nothing = [tail] * 10
        where, strategy, temperature = nothing, 1, 1.0
        if cache is not None and refreshing:
            owners = [self.kernels.owner(side) for side in cache.sides]
            for place, (key, owner) in enumerate(zip(cache.keys, owners, strict=True)):
                grid = (triton.cdiv(len(key), 256),)
                refresh.claim[grid](key, owner, len(key), place * len(key), BLOCK=256)
            ids = [side.ids for side in cache.sides]
            seeds = self.kernels.seeds(cache.seed, tail.device)
            where = [*cache.keys, *cache.numbers(), *owners, *ids, seeds, cache.tick]
            strategy = STRATEGIES[cache.settings.refresh]
            temperature = cache.settings.temperature
        block = max(2, triton.next_power_of_2(len(tail)))
        weight = asked.weight
        softmax.weigh[(n,)](
            candidates, slopes, tail, tail_slopes, slopes if weight is None else weight, losses,
            *where, n // 2, len(tail), float(self.learning.scale), math.log(rivals.weight),
            float(temperature), NEGLIGIBLE, N1=n1, NEAR=rivals.walks,
            C=max(2, triton.next_power_of_2(columns)), BLOCK=block,
            SEARCH=max(0, n1 - 1).bit_length(), HAS_WEIGHT=weight is not None,
            REFRESH=refreshing, STRATEGY=strategy, HEAD_NOISE=random.NOISE[Side.HEAD],
            TAIL_NOISE=random.NOISE[Side.TAIL], num_warps=max(4, min(16, block // 256)),
        )  # fmt: skip

    def add_rows(self, table: str, ids: Tensor, gradients: Tensor, first: int = 0) -> None:
        """Add gradients [n, D] of rows, which may repeat; of entities, of places from ``first``."""
        size = gradients.shape[1]
        softmax_back.add_rows[(len(ids),)](
            ids, gradients.contiguous(), self.gradients[table], self.slots, self.owners[table],
            first, D=size, BLOCK=triton.next_power_of_2(size),
            COMPACT=self.compact and table == "entity", num_warps=1,
        )  # fmt: skip

    def move(self, n: int, loss: Tensor, teaching: Tensor, sums: Tensor) -> None:
        if n > len(self.losses):
            self.losses, self.teachings = (self.rows.new_zeros(n) for _ in range(2))
        self.losses[:n].copy_(loss)
        self.teachings[:n].copy_(teaching)
        self._move(n)
        self._finish(n, sums)
