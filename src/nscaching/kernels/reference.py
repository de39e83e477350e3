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
from nscaching.kernels.standing import Asked, Tile, stand_in_parts, tile_of
from nscaching.kernels.strata import refresh_strata
from nscaching.models import Model, plain_distances
from nscaching.settings import CacheSettings

Step = Callable[[int], None]
"""A step on so many of the training triples that come next."""


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

    def take(self, columns: Tensor, seed: int, taken: Tensor, size: int) -> Tensor:
        """Take the next triples of a random order, which is a new one in each pass over all.

        ``taken`` [] counts the triples taken so far, and grows by ``size``. Returns row numbers and
        the columns [k, n] at those rows: [1 + k, size].
        """
        count = columns.shape[1]
        start = random.stream(seed, taken // count, random.ORDER)
        place = taken % count + torch.arange(size, device=columns.device)
        row = random.rotated(start, place, count)
        taken += size
        return torch.cat([row.unsqueeze(0), columns.index_select(1, row).long()])

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
        """Return a step that may run faster than the given one.

        Steps of one size and one phase must be the same operations on the same memory; where they
        are not, phase is None.
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

    def sample(self, below: int, count: int, seed: int, number: Tensor) -> Tensor:
        """Return different numbers of 0 … below − 1 for each sample [n], by its number: [n, count].

        Any are as likely as any others.
        """
        start = random.stream(seed, number, random.RIVAL).unsqueeze(1)
        return random.rotated(start, torch.arange(count, device=number.device), below)

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
        if asked.settings.strata > 1:
            refresh_strata(asked)
            return
        model, settings = asked.model, asked.settings
        for cache, key in zip(asked.sides, asked.keys, strict=True):
            key = key[key >= 0].unique()
            slot = torch.arange(settings.n1 + settings.n2, device=key.device).unsqueeze(0)
            number = cache.numbers(key).unsqueeze(1)
            start = random.stream(asked.seed, asked.tick, random.FRESH[cache.side])
            own = torch.zeros_like(number) if settings.shared_candidates else number
            fresh = random.whole(random.bits(start, own, slot[:, settings.n1 :]), model.entities)
            fresh = fresh.expand(len(key), -1)
            candidates = torch.cat([cache.ids[key].long(), fresh], dim=1)  # [keys, N1 + N2]
            excluded = asked.excluded(cache.side, key, candidates)
            query = cache.side, cache.anchor[key], cache.relation[key]
            scores = model.score_candidates(*query, candidates, self.rounding(settings))
            # A set gives each entity one noise, wherever in the row it stands.
            index = candidates if settings.candidates == "set" else slot
            start = random.stream(asked.seed, asked.tick, random.NOISE[cache.side])
            noise = random.gumbel(random.bits(start, number, index))
            chosen = select(
                settings.refresh, scores, settings.n1, noise, settings.temperature, excluded
            )
            kept = candidates.gather(1, chosen.sort(1).values)
            cache.ids[key] = (kept.sort(1).values if settings.candidates == "set" else kept).int()

    def take_rows(self, rows: Tensor, row: Tensor) -> Tensor:
        """Copy some rows [B] of a cache [rows, N1], wherever it is, to the device of ``row``."""
        return rows.index_select(0, row.to(rows.device)).to(row.device)

    def put_rows(self, rows: Tensor, row: Tensor, copies: Tensor, last: Tensor) -> None:
        """Write copies [B, N1] to the rows [B] of a cache, where they are.

        Of equal rows, which follow one another, the copy that is the ``last`` [B] counts.
        """
        rows[row.to(rows.device)] = copies[last].to(rows.device)

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

    def score_all(
        self,
        model: Model,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        entities: Tensor | None = None,
    ) -> Tensor:
        """Score every entity, or some [K], as the answer: anchor [n], relation [n] → [n, K]."""
        if entities is None:
            return model.score_all(side, anchor, relation, self.distances)
        return model.score_shared(side, anchor, relation, entities, self.distances)

    def distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return ‖q − e‖ [n, E] of all queries [n, D] and rows [E, D]."""
        return plain_distances(query, rows, norm)

    def tile(self, model: Model, budget: int) -> Tile:
        """Return how many queries meet how many entities at once within some bytes of scores."""
        return tile_of(model, budget)

    def stand(self, model: Model, side: Side, asked: Asked, width: int) -> Tensor:
        """Count [3, n] as ``count`` does among all entities, of which ``width`` are scored at once.

        ``width`` is at least n, or all entities.
        """
        if width < model.entities:
            return stand_in_parts(self, model, side, asked, width)
        scores = self.score_all(model, side, asked.anchor, asked.relation)
        return self.count(scores, asked.answer, asked.known)

    def count(
        self,
        scores: Tensor,
        answer: Tensor,
        known: Known | None,
        target: Tensor | None = None,
        first: int = 0,
    ) -> Tensor:
        """Count in each row of scores [n, E]: above the answer [n], equal to it, non-finite.

        Returns [3, n]. The answer itself and known answers do not count as above or equal. The
        scores may be overwritten. They may be those of the entities from ``first`` on, to which all
        of ``known`` belong; ``target`` [n] is the score of the answer then.
        """
        if target is None:
            target = scores.gather(1, answer.unsqueeze(1)).squeeze(1)
        wrong = (~scores.isfinite()).sum(1)
        if known is not None:
            row, entity = known.pairs()
            scores[row, entity - first] = float("-inf")
        (row,) = ((answer >= first) & (answer < first + scores.shape[1])).nonzero(as_tuple=True)
        scores[row, answer[row] - first] = float("-inf")
        above, level = (
            compare(scores, target.unsqueeze(1)).sum(1) for compare in (torch.gt, torch.eq)
        )
        return torch.stack([above, level, wrong])
