"""Relation prediction: the true relation of (h, ?, t) among all relations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import (
    BUDGET,
    Progress,
    Ties,
    id_tensor,
    known_from,
    metrics,
    non_empty,
    rank_among,
    rows_by,
)  # fmt: skip
from nscaching.models import Model

# Tensors [pairs, relations, D] that the score of a triple holds at its peak.
TEMPORARIES = 6


def evaluate_relations(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    *,
    filtered: bool = True,
    ties: Ties = "realistic",
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Rank the relation of each triple of a split; report the metrics overall and by relation.

    Filtered: other relations known between the two entities, in any split, do not count.
    """
    head, relation, tail = non_empty(graph, split).T
    device = model.entity.device
    known = None
    if filtered:
        h, r, t = np.concatenate([graph.split(s) for s in SPLITS]).T
        index = AnswerIndex.build(h, t, r, len(graph.entities))
        known = known_from(index, head, tail, device)
    heads, tails = id_tensor(head, device), id_tensor(tail, device)
    width = max(model.entity[0].numel(), model.relation[0].numel())
    piece = max(1, budget // (4 * TEMPORARIES * width))  # (entity pair, relation) at once
    ranks = rank_among(
        lambda some: _scores(model, heads[some], tails[some], piece),
        id_tensor(relation, device),
        known,
        Chunks(max(1, piece // model.relations)),
        progress,
    ).resolve(ties)
    by_relation = {
        graph.relations[r]: {"triples": len(rows), **metrics(ranks[rows])}
        for r, rows in rows_by(relation)
    }
    return {
        "task": "relations",
        "split": split,
        "filtered": filtered,
        "ties": ties,
        "candidates": len(graph.relations),
        "triples": len(ranks),
        **metrics(ranks),
        "by_relation": by_relation,
    }


def _scores(model: Model, head: Tensor, tail: Tensor, piece: int) -> Tensor:
    """Score every relation between heads [n] and tails [n]: [n, |R|]."""
    every = torch.arange(model.relations, device=head.device).unsqueeze(0)
    head, tail = head.unsqueeze(1), tail.unsqueeze(1)
    parts = every.split(max(1, piece // len(head)), dim=1)
    return torch.cat([model.score(head, part, tail) for part in parts], dim=1)
