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

    For a query with answer t, a head C, which is what is cached and what is near in the graph, and
    a tail U of K entities that were drawn without replacement,

        Z = exp s(t) + Σ_{c ∈ C, c ≠ t} exp s(c) + |E|/K · Σ_{u ∈ U, u ∉ C, u ≠ t} exp s(u)

    is an unbiased estimate of the sum over all entities, and the loss is log Z − s(t). The scores
    also choose the new rows of the cache.
    """

    def loss_of(self, side: Side, batch: Batch, negatives: Contrast) -> Tensor:
        assert isinstance(negatives, Rivals)
        ends = side.query(batch.head, batch.tail)
        anchor, answer = ends[0], ends[1].unsqueeze(1)
        cached = negatives.cached(side).expand(len(batch), -1)  # [B, N1]
        near = negatives.near(side, anchor, cached)  # [B, M]
        query, scale = (side, anchor, batch.relation), self.learning.scale
        rows = torch.cat([answer, cached, near], 1)
        head = scale * self.model.score_candidates(*query, rows)
        shared = scale * self.model.score_shared(*query, negatives.tail, self.distances)
        return contrast(negatives, side, rows, cached, near, head, shared)


def contrast(
    rivals: Rivals,
    side: Side,
    rows: Tensor,
    cached: Tensor,
    near: Tensor,
    head: Tensor,
    shared: Tensor,
) -> Tensor:
    """Return the losses [B] of queries by the scores of their answers and heads, and of the tail.

    ``rows`` [B, 1 + N1 + M] are the answers, what is cached and what is near, ``head`` their
    scores; ``shared`` [B, K] are the scores of the tail. The scores also refresh the cache.
    """
    tail, answer = rivals.tail, rows[:, :1]
    scores = torch.cat([head[:, 1:], shared], 1)  # [B, N1 + M + K]
    in_head = is_member(tail, cached) | is_member(tail, near.sort(1).values)  # [B, K]
    new = torch.zeros_like(cached, dtype=torch.bool)
    again = torch.cat([new, near == cached[:, :1], in_head], 1)
    rivals.refresh(side, rows[:, 1:], scores.detach(), again)
    is_answer = torch.cat([rows[:, 1:] == answer, (tail == answer).expand_as(shared)], 1)
    weighted = torch.cat([head[:, 1:], shared + math.log(rivals.weight)], 1)
    others = weighted.masked_fill(again | is_answer, float("-inf"))
    loss: Tensor = torch.logsumexp(torch.cat([head[:, :1], others], 1), 1) - head[:, 0]
    return loss


def is_member(some: Tensor, rows: Tensor) -> Tensor:
    """Mark the entities [K] that stand in each row [B, N1] of entities in ascending order."""
    if not rows.shape[1]:
        return torch.zeros(len(rows), len(some), dtype=torch.bool, device=some.device)
    some = some.expand(len(rows), -1).contiguous()
    place = torch.searchsorted(rows.contiguous(), some).clamp_(max=rows.shape[1] - 1)
    return rows.gather(1, place) == some
