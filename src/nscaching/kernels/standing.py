"""Where answers stand among all entities: a ranking in tiles of queries and entities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.batch import Known
from nscaching.models import Model

if TYPE_CHECKING:
    from nscaching.kernels.reference import Kernels

# Peak bytes per query and entity, for forms that score relation by relation: the scores of each
# relation (4), joined (4), in the order of the queries (4), and times a weight (4).
SCORE_BYTES = 16
# Where so few queries meet all entities at once, more queries meet a part of the entities.
FEW_QUERIES, MANY_QUERIES = 64, 1024


@dataclass(frozen=True)
class Asked:
    """Some queries of two ids each with their answers; of (h, ?, t) the ids are h and t."""

    anchor: Tensor  # [n]
    relation: Tensor  # [n]
    answer: Tensor  # [n]
    known: Known | None = None  # answers that do not count

    def part(self, some: slice) -> Asked:
        known = self.known and self.known.part(some)
        return Asked(self.anchor[some], self.relation[some], self.answer[some], known)

    def cuts(self, firsts: range, entities: int) -> list[Known | None]:
        """Return the known answers in each part of the entities."""
        if self.known is None:
            return [None] * len(firsts)
        bounds = torch.tensor([*firsts, entities], device=self.answer.device)
        places = self.known.cut(bounds).T.contiguous()  # [parts + 1, n]
        ends = pairwise(places)
        return [Known(start, end, self.known.answers) for start, end in ends]


class Tile(NamedTuple):
    """What a ranking works on at once."""

    queries: int
    entities: int
    kept: bool = True
    """Whether the scores of a tile lie in memory."""


def scores_within(model: Model, budget: int) -> int:
    """Return how many scores fit into some bytes, temporaries included; at least one."""
    per_score = SCORE_BYTES
    if model.broadcasts:  # which takes a few [queries, |E|, D] tensors
        per_score += 3 * 4 * model.entity.shape[1]
    return max(1, budget // per_score)


def tile_of(model: Model, budget: int) -> Tile:
    """Return a tile whose scores fit into some bytes: a stripe of all entities if it is wide."""
    scores = scores_within(model, budget)
    queries = scores // model.entities
    if queries >= (1 if model.broadcasts else FEW_QUERIES):
        return Tile(queries, model.entities)
    queries = min(MANY_QUERIES, math.isqrt(scores))
    return Tile(queries, min(model.entities, scores // queries))


def stand_in_parts(kernels: Kernels, model: Model, side: Side, asked: Asked, width: int) -> Tensor:
    """Count [3, n] among all entities, part after part."""
    answer, query = asked.answer, (model, side, asked.anchor, asked.relation)
    place = torch.arange(width, device=answer.device)
    # The answers are scored as all others are, in as many columns: equal rows score alike.
    scores = kernels.score_all(*query, answer[place % len(answer)])
    target = scores[place[: len(answer)], place[: len(answer)]]
    total = torch.zeros(3, len(answer), dtype=torch.int64, device=answer.device)
    firsts = range(0, model.entities, width)
    for first, known in zip(firsts, asked.cuts(firsts, model.entities), strict=True):
        some = (first + place).clamp_(max=model.entities - 1)
        scores = kernels.score_all(*query, some)[:, : model.entities - first].contiguous()
        total += kernels.count(scores, answer, known, target, first)
    return total
