"""The cached softmax: the cache is the head of the partition function, a shared tail the rest."""

import math

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Batch
from nscaching.kernels.caches import Contrast, Rivals
from nscaching.kernels.learner import AllEntities


class SoftmaxLearner(AllEntities):
    """−log p(t | h, r) − log p(h | r, t) with an estimate of the partition function.

    For a query with answer t, cached entities C and a tail U of K entities that were drawn without
    replacement,

        Z = exp s(t) + Σ_{c ∈ C, c ≠ t} exp s(c) + |E|/K · Σ_{u ∈ U, u ∉ C, u ≠ t} exp s(u)

    is an unbiased estimate of the sum over all entities, and the loss is log Z − s(t). The scores
    also choose the new rows of the cache.
    """

    def loss_of(self, side: Side, batch: Batch, negatives: Contrast) -> Tensor:
        assert isinstance(negatives, Rivals)
        anchor, answer = (ids.unsqueeze(1) for ids in side.query(batch.head, batch.tail))
        cached = negatives.cached(side).expand(len(batch), -1)  # [B, N1]
        query = side, anchor.squeeze(1), batch.relation
        scale, tail = self.learning.scale, negatives.tail
        head = scale * self.model.score_candidates(*query, torch.cat([answer, cached], 1))
        shared = scale * self.model.score_shared(*query, tail, self.distances)  # [B, K]
        again = is_member(tail, cached)  # [B, K]
        candidates = torch.cat([head[:, 1:], shared], 1).detach()
        twice = torch.cat([torch.zeros_like(cached, dtype=torch.bool), again], 1)
        negatives.refresh(side, cached, candidates, twice)
        no_rival = torch.cat([cached == answer, again | (tail == answer)], 1)
        rivals = torch.cat([head[:, 1:], shared + math.log(negatives.weight)], 1)
        rivals = rivals.masked_fill(no_rival, float("-inf"))
        loss: Tensor = torch.logsumexp(torch.cat([head[:, :1], rivals], 1), 1) - head[:, 0]
        return loss


def is_member(some: Tensor, rows: Tensor) -> Tensor:
    """Mark the entities [K] that stand in each row [B, N1] of entities in ascending order."""
    if not rows.shape[1]:
        return torch.zeros(len(rows), len(some), dtype=torch.bool, device=some.device)
    some = some.expand(len(rows), -1).contiguous()
    place = torch.searchsorted(rows.contiguous(), some).clamp_(max=rows.shape[1] - 1)
    return rows.gather(1, place) == some
