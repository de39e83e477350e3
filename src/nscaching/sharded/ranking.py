"""Filtered ranking in shards: each rank counts among its own entities."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side
from nscaching.errors import DIVERGED, Diverged
from nscaching.evaluation.ranking import BUDGET, Progress, id_tensor
from nscaching.evaluation.ranks import Ranks
from nscaching.kernels import Kernels, Known
from nscaching.kernels.standing import scores_within
from nscaching.sharded.meeting import Meeting


class ShardQueries:
    """Both queries of some triples, with the known answers that this rank owns."""

    def __init__(self, graph: KnowledgeGraph, triples: Ids, meeting: Meeting) -> None:
        self.graph, self.meeting = graph, meeting
        self.device = meeting.model.entity.device
        self.order = np.argsort(triples[:, 1], kind="stable")  # forms may work by relation
        self.triples = triples[self.order]

    def side(self, side: Side) -> tuple[Tensor, Tensor, Tensor, Known]:
        """Return anchors, relations, answers [n] and known answers, these by their rows here."""
        return self._sides[side]

    @cached_property
    def _sides(self) -> dict[Side, tuple[Tensor, Tensor, Tensor, Known]]:
        shards, sides = self.meeting.shards, {}
        head, relation, tail = self.triples.T
        for side in Side:
            anchor, answer = side.query(head, tail)
            asking, known = self.graph.filter_index[side].known(anchor, relation)
            entity = torch.from_numpy(known).long()
            own = shards.mine(entity)
            row, place = torch.from_numpy(asking)[own], shards.place(entity[own])
            order = (row * len(shards) + place).argsort()  # rows of a query have to ascend
            end = row.bincount(minlength=len(anchor)).cumsum(0)
            start = torch.cat([end.new_zeros(1), end[:-1]])
            first, second, right = (id_tensor(i, self.device) for i in (anchor, relation, answer))
            at_least_one = place[order].int() if len(order) else torch.zeros(1, dtype=torch.int32)
            runs = Known(*(t.to(self.device) for t in (start, end, at_least_one)))
            sides[side] = first, second, right, runs
        return sides


@torch.no_grad()
def rank_in_shards(
    queries: ShardQueries, kernels: Kernels, progress: Progress, budget: int = BUDGET
) -> dict[Side, Ranks]:
    """Rank the true head and tail of each triple among all entities, on all ranks alike."""
    meeting, total = queries.meeting, len(queries.triples)
    world, shards, model = meeting.world, meeting.shards, meeting.model
    place, ranks = np.argsort(queries.order), {}
    most = -(-shards.entities // world.size) + shards.entities // shards.blocks + 1
    chunk = max(1, scores_within(model, budget) // most)  # the same on all ranks
    for number, side in enumerate(Side):
        anchor, relation, answer, known = queries.side(side)
        counts = []
        for first in range(0, total, chunk):
            some = slice(first, min(first + chunk, total))
            met, asked = _queries(meeting, side, anchor[some], relation[some])
            scores = model.meet_shared(met, asked, _everyone(meeting), kernels.distances)
            own = shards.mine(answer[some])
            at = torch.where(own, shards.place(answer[some]), -1)
            target = scores.gather(1, at.clamp(min=0).unsqueeze(1)).squeeze(1)
            target = world.sum(torch.where(own, target, 0.0), "rankings")
            found = kernels.count(scores, at, known.part(some), target)
            counts.append(world.sum(found, "rankings"))
            progress(number * total + some.stop, 2 * total)
        above, level, non_finite = torch.cat(counts, 1).cpu().numpy()
        if non_finite.any():
            raise Diverged(DIVERGED)
        ranks[side] = Ranks((above + 1)[place], (above + level + 1)[place])
    return ranks


def _everyone(meeting: Meeting) -> Tensor:
    return torch.arange(len(meeting.shards), device=meeting.model.entity.device)


def _queries(
    meeting: Meeting, side: Side, anchor: Tensor, relation: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the queries [n, D], which the owners of the anchors make, and their relations."""
    model, shards = meeting.model, meeting.shards
    side, relation = model.asked(side, relation)
    (own,) = shards.mine(anchor).nonzero(as_tuple=True)
    made = model.query(side, shards.place(anchor[own]), relation[own])
    query = made.new_zeros(len(anchor), made.shape[1]).index_copy_(0, own, made)
    return meeting.world.sum(query, "rankings"), relation
