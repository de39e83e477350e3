"""Queries of one rank meet entities of all: queries and ids go out, scores come back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.kernels.shards import Shards
from nscaching.models import Model
from nscaching.sharded.world import World


@dataclass(frozen=True)
class Meeting:
    """Scores by the rows of a model of this rank's entities; gradients find their way back.

    All ranks have to meet at the same time, also those without a query of their own.
    """

    world: World
    shards: Shards
    model: Model  # of this rank's entities alone

    def scores(
        self, query: Tensor, relation: Tensor, candidates: Tensor, shared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Score candidates [n, C] by queries [n, D] of relations [n], and ``shared`` entities [K].

        The relations are as the model asks for them. Returns [n, C] and [n, K].
        """
        world, (n, count) = self.world, candidates.shape
        owner = self.shards.owner(candidates)
        # How many candidates of each query each rank owns: [ranks, n].
        owned = owner.new_zeros(world.size, n)
        row = torch.arange(n, device=query.device).unsqueeze(1).expand(n, count)
        owned.index_put_((owner, row), owned.new_ones(()), accumulate=True)
        asked = torch.ones_like(owned) if shared is not None else owned > 0
        rank, asking = asked.nonzero(as_tuple=True)  # rank after rank, and so are pairs
        order = (owner * n + row).flatten().argsort(stable=True)
        sent = torch.stack([asked.sum(1), owned.sum(1)], 1)  # [ranks, 2]
        got = world.counts(sent)
        (queries, pairs), (to_me, my_pairs) = sent.T.tolist(), got.T.tolist()

        about = torch.stack([relation[asking], owned[rank, asking]], 1).int()
        about = world.exchange(about, queries, to_me, "ids").long()
        place = self.shards.place(candidates.flatten()[order]).int()
        place = world.exchange(place, pairs, my_pairs, "ids").long()
        met = world.exchange(query[asking], queries, to_me, "queries")
        mine = torch.arange(len(met), device=query.device).repeat_interleave(about[:, 1])
        found = self.model.meet_candidates(met[mine], about[mine, 0], place.unsqueeze(1)).squeeze(1)
        found = world.exchange(found, my_pairs, pairs, "scores")
        scores = found.new_empty(n * count).index_copy(0, order, found).view(n, count)
        if shared is None:
            return scores, scores[:, :0]
        return scores, self._shared_scores(met, about[:, 0], shared, queries, to_me)

    def _shared_scores(
        self, met: Tensor, relation: Tensor, shared: Tensor, queries: list[int], to_me: list[int]
    ) -> Tensor:
        """Score entities [K] by the queries that came to this rank; return those of its own."""
        world, owner = self.world, self.shards.owner(shared)
        here = shared[owner == world.rank]
        found = self.model.meet_shared(met, relation, self.shards.place(here))
        sizes = owner.bincount(minlength=world.size).tolist()
        back = [n * size for n, size in zip(queries, sizes, strict=True)]
        found = found.flatten()
        found = world.exchange(found, [n * len(here) for n in to_me], back, "scores")
        parts = [part.view(-1, size) for part, size in zip(found.split(back), sizes, strict=True)]
        return torch.cat(parts, 1)[:, owner.argsort(stable=True).argsort()]

    def rows(self, entity: Tensor) -> Tensor:
        """Return the rows [n, D] of entities [n] of any rank."""
        world, owner = self.world, self.shards.owner(entity)
        order = owner.argsort(stable=True)
        sent = owner.bincount(minlength=world.size).unsqueeze(1)
        got = world.counts(sent).flatten().tolist()
        place = self.shards.place(entity[order]).int()
        place = world.exchange(place, sent.flatten().tolist(), got, "ids").long()
        rows = self.model.entity_rows(place)
        return world.exchange(rows, got, sent.flatten().tolist(), "rows")[order.argsort()]
