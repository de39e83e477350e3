"""The operations that take the time, in plain torch: what every fast twin has to agree with."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import CacheAccess
from nscaching.kernels.choose import ordered, select
from nscaching.kernels.learner import AutogradLearner, Learner, OneVsAll
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.softmax import SoftmaxLearner
from nscaching.models import Model, plain_distances
from nscaching.settings import CacheSettings

Step = Callable[[Tensor], None]


class Kernels:
    """The reference path: plain torch, any model, any device."""

    name = "reference"

    def __init__(self, reason: str = "asked for") -> None:
        self.reason = reason  # why this path runs, for the user to read

    def __deepcopy__(self, memo: object) -> Self:
        return self  # copies share threads, and memory for one call at a time

    def compile_seconds(self) -> float:
        """Return the seconds that this process has compiled, as far as they are known."""
        return 0.0

    @staticmethod
    def rounding(settings: CacheSettings) -> torch.dtype | None:
        """Return the type that candidate rows are rounded to; None: they are not rounded."""
        return torch.bfloat16 if settings.candidate_rows == "bfloat16" else None

    # Training.

    def gather(self, columns: Tensor, row: Tensor) -> Tensor:
        """Return the columns [k, n] at some rows [B]: [k, B]."""
        return columns.index_select(1, row)

    def learner(self, model: Model, learning: Learning) -> Learner:
        """Return what makes the gradient steps, with negatives that replace one side."""
        if learning.objective == "1vsall":
            return OneVsAll(model, learning, self.distances)
        if learning.objective == "softmax":
            return SoftmaxLearner(model, learning, self.distances)
        return AutogradLearner(model, learning)

    def scorer(self, model: Model, learning: Learning) -> Learner:
        """Return what scores candidates of a batch and learns by slopes of the scores."""
        return AutogradLearner(model, learning)

    def capture(self, step: Step, phase: Callable[[], object] | None) -> Step:
        """Return a step on the rows [B] of a batch that may run faster than the given one.

        Steps of one size and one phase must be the same operations on the same memory, apart from
        the rows; where they are not, phase is None.
        """
        return step

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
        """Draw ``count`` negatives for each triple, all with a new head or all with a new tail.

        chance [|R|] is the head's. The entities are drawn from the caches [keys, N1] of heads and
        tails, if they are given, from different slots; or else from all entities.
        """
        replace_head = self.coin(batch, chance, seed, tick)
        if not caches:
            bits = self.bits(random.ENTITY, seed, tick, len(batch), count)
            head = tail = random.whole(bits, entities)
        else:
            n1 = caches[0].shape[1]
            if count == 1:
                slot = random.whole(self.bits(random.SLOT, seed, tick, len(batch)), n1)
            else:
                order = self.bits(random.SLOT, seed, tick, len(batch), n1)
                slot = order.topk(count, dim=1).indices
            keys = (batch.head_key.unsqueeze(1), batch.tail_key.unsqueeze(1))
            head, tail = (ids[key, slot].long() for ids, key in zip(caches, keys, strict=True))
        return batch.corrupt(replace_head, head, tail)

    @torch.no_grad()
    def draw_by_score(
        self, batch: Batch, replace_head: Tensor, asked: CacheAccess, count: int = 1
    ) -> Negatives:
        """Draw ``count`` negatives of each triple from its head cache or its tail cache.

        The settings say how: by importance, the best, or any. The temperature belongs to the
        refresh alone.
        """
        drawn = []
        for cache, key in zip(asked.sides, asked.keys, strict=True):
            cached = cache.ids[key].long()
            scores = cached.new_zeros(cached.shape, dtype=torch.float32)
            if asked.settings.draw != "uniform":
                anchor, relation = cache.anchor[key], cache.relation[key]
                scores = asked.model.score_candidates(cache.side, anchor, relation, cached)
            # Of the two sides one is used: they may share the noise.
            bits = self.bits(random.SLOT, asked.seed, asked.tick, *cached.shape)
            chosen = select(asked.settings.draw, scores, count, random.gumbel(bits))
            drawn.append(cached.gather(1, chosen))
        head, tail = drawn
        return batch.corrupt(replace_head, head, tail)

    def coin(self, batch: Batch, chance: Tensor, seed: int, tick: Tensor) -> Tensor:
        """Choose for each triple [B] whether its head is to be replaced, else its tail."""
        bits = self.bits(random.COIN, seed, tick, len(batch)).squeeze(1)
        return random.uniform(bits) < chance[batch.relation]

    def tail(self, entities: int, count: int, seed: int, tick: Tensor) -> Tensor:
        """Return different entities [count], each as likely as any; all if there are fewer.

        Steps take consecutive parts of a random order of all entities, then of another order: the
        cost does not grow with the number of entities.
        """
        place = torch.arange(min(count, entities), device=tick.device)
        if count >= entities:
            return place
        parts = entities // count
        start = random.stream(seed, tick // parts, random.TAIL)
        return random.shuffled(start, tick % parts * count + place, entities)

    def bits(self, purpose: int, seed: int, tick: Tensor, rows: int, count: int = 1) -> Tensor:
        """Return random bits [rows, count] of a step for a purpose."""
        row, index = (torch.arange(size, device=tick.device) for size in (rows, count))
        return random.bits(random.stream(seed, tick, purpose), row.unsqueeze(1), index)

    @torch.no_grad()
    def reward(self, model: Model, batch: Batch, negatives: Negatives) -> Tensor:
        """Score the negatives [B, K] of a batch with no gradient."""
        return negatives.scores(model, batch)

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        """Refresh the keys of each side in place (Algorithm 3).

        Repeated keys are refreshed once. The result depends on seed, tick and key alone, not on
        the order of keys. A set is kept in ascending order, slots in the order that they had: so
        every path draws the same entity from the third place, say. Where fewer than N1 candidates
        remain, they are taken again in turn, in any order.
        """
        model, settings = asked.model, asked.settings
        for cache, key in zip(asked.sides, asked.keys, strict=True):
            key = key[key >= 0].unique()
            slot = torch.arange(settings.n1 + settings.n2, device=key.device).unsqueeze(0)
            row = key.unsqueeze(1)
            start = random.stream(asked.seed, asked.tick, random.FRESH[cache.side])
            own = torch.zeros_like(row) if settings.shared_candidates else row
            fresh = random.whole(random.bits(start, own, slot[:, settings.n1 :]), model.entities)
            fresh = fresh.expand(len(key), -1)
            candidates = torch.cat([cache.ids[key].long(), fresh], dim=1)  # [keys, N1 + N2]
            excluded = asked.excluded(cache.side, key, candidates)
            query = cache.side, cache.anchor[key], cache.relation[key]
            scores = model.score_candidates(*query, candidates, self.rounding(settings))
            # A set gives each entity one noise, wherever in the row it stands.
            index = candidates if settings.candidates == "set" else slot
            start = random.stream(asked.seed, asked.tick, random.NOISE[cache.side])
            noise = random.gumbel(random.bits(start, row, index))
            chosen = select(
                settings.refresh, scores, settings.n1, noise, settings.temperature, excluded
            )
            kept = candidates.gather(1, chosen.sort(1).values)
            cache.ids[key] = (kept.sort(1).values if settings.candidates == "set" else kept).int()

    # Counts for the probes.

    def new_elements(self, ids: Tensor, keys: Tensor, before: Tensor, out: Tensor) -> None:
        """Count the different elements of cache rows that the rows ``before`` [n, N1] lack.

        The rows belong to keys [n] of the cache ``ids`` [keys, N1]. The numbers go to ``out`` [n],
        and the rows are copied to ``before``.
        """

        def distinct(rows: Tensor) -> Tensor:
            rows = ordered(rows)
            return (rows[:, 1:] != rows[:, :-1]).sum(1)

        now = ids[keys]
        out.copy_(distinct(torch.cat([before, now], dim=1)) - distinct(before))
        before.copy_(now)

    # Ranking.

    def score_all(self, model: Model, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score every entity as the answer: anchor [n], relation [n] → [n, |E|]."""
        return model.score_all(side, anchor, relation, self.distances)

    def distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return ‖q − e‖ [n, E] of all queries [n, D] and rows [E, D]."""
        return plain_distances(query, rows, norm)

    def count(self, scores: Tensor, answer: Tensor, known: Known | None) -> Tensor:
        """Count in each row of scores [n, E]: above the answer [n], equal to it, non-finite.

        Returns [3, n]. The answer itself and known answers do not count as above or equal. The
        scores may be overwritten.
        """
        answer = answer.unsqueeze(1)
        target = scores.gather(1, answer)
        wrong = (~scores.isfinite()).sum(1)
        if known is not None:
            scores[known.pairs()] = float("-inf")
        scores.scatter_(1, answer, float("-inf"))
        return torch.stack([(scores > target).sum(1), (scores == target).sum(1), wrong])
