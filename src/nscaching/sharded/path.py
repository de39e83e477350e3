"""Plain torch or compiled loops: what makes the steps and the refreshes of one rank."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import CacheAccess, Kernels, Learning
from nscaching.kernels.compiled import WITH_NEGATIVES, has_queries
from nscaching.kernels.learner import Learner
from nscaching.models import Model
from nscaching.sharded.learner import ShardLearner
from nscaching.sharded.meeting import Meeting

PLAIN = Kernels()  # which take scores from anywhere


@dataclass
class Path:
    """Plain torch: any model, any device."""

    meeting: Meeting

    name = "plain"

    def learner(self, learning: Learning) -> Learner:
        return ShardLearner(self.meeting, learning)

    def refresh(self, asked: CacheAccess) -> None:
        """Refresh rows of this rank by scores of entities of all ranks."""
        PLAIN.refresh(dataclasses.replace(asked, model=ShardScores(self.meeting)))


class ShardScores(Model):
    """Scores candidates of any rank for queries of this one: the model of a refresh."""

    def __init__(self, meeting: Meeting) -> None:
        super().__init__(meeting.shards.entities, meeting.model.relations, meeting.model.dim)
        self.meeting = meeting

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        raise TypeError("single triples are not scored in shards")

    def score_candidates(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        candidates: Tensor,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        model = self.meeting.model
        side, relation = model.asked(side, relation)
        query = model.query(side, self.meeting.shards.place(anchor), relation)
        return self.meeting.scores(query, relation, candidates)[0]


def choose_path(meeting: Meeting, kernels: Kernels, objective: str) -> Path:
    """Return the compiled path where the model has compiled queries, on a CPU; else the plain."""
    if kernels.name != "numba" or not has_queries(meeting.model):
        return Path(meeting)
    if objective not in WITH_NEGATIVES:
        return Path(meeting)
    from nscaching.kernels.cpu.kernels import NumbaKernels
    from nscaching.sharded.numba_path import NumbaPath

    assert isinstance(kernels, NumbaKernels)
    return NumbaPath(meeting, kernels)
