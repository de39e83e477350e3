"""Rankings among few candidates: the relations of (h, ?, t), the classes of an entity."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.errors import UserError
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import (
    BUDGET,
    Floats,
    Progress,
    Ties,
    id_tensor,
    known_from,
    metrics,
    non_empty,
    rank_among,
    rows_by,
    triples_of,
)
from nscaching.models import Model

# Tensors [pairs, relations, D] that the score of a triple holds at its peak.
TEMPORARIES = 6
# Bytes per entity and class at the peak: the scores, a copy, and two masks.
SCORE_BYTES = 16


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


def classify_entities(
    model: Model, graph: KnowledgeGraph, relation: int, split: str = "test", budget: int = BUDGET
) -> dict[str, Any]:
    """Rank the classes of each x in the triples (x, relation, class) of a split.

    Other known classes of x do not count. A class without a training triple cannot be found and
    ranks last. The baseline ranks the classes by their number of training triples.
    """
    name = graph.relations[relation]
    train, asked = (triples_of(graph, relation, (s,)) for s in ("train", split))
    classes, sizes = np.unique(train[:, 2], return_counts=True)
    if len(classes) < 2:
        few = "no classes" if not len(classes) else "one class only"
        raise UserError(f"relation {name!r} has {few} in training: there is nothing to choose")
    if not len(asked):
        raise UserError(f"relation {name!r} has no triples in the {split} split")
    seen = np.isin(asked[:, 2], classes)
    ranks, common = np.full((2, len(asked)), len(classes) + 1.0)
    if seen.any():
        ranks[seen], common[seen] = _rank(model, graph, asked[seen], classes, sizes, budget)
    by_class = {
        graph.entities[entity]: {
            "label": graph.label(entity),
            "train": int(sizes[classes == entity].sum()),
            "triples": len(rows),
            **_figures(ranks[rows]),
        }
        for entity, rows in rows_by(asked[:, 2])
    }
    commonest = int(classes[sizes.argmax()])
    majority = {"class": graph.entities[commonest], "label": graph.label(commonest)}
    return {
        "task": "entities",
        "relation": name,
        "split": split,
        "classes": len(classes),
        "triples": len(asked),
        "triples_of_unseen_classes": int((~seen).sum()),
        **_figures(ranks),
        "majority": majority | _figures(common),
        "by_class": by_class,
    }


def _rank(
    model: Model,
    graph: KnowledgeGraph,
    asked: Ids,
    classes: Ids,
    sizes: npt.NDArray[np.int64],
    budget: int,
) -> list[Floats]:
    """Rank the tails of triples [n, 3] among the classes: by the model, and by frequency."""
    device = model.entity.device
    anchor, relation, _ = id_tensor(asked, device).unbind(1)
    known = triples_of(graph, asked[0, 1])
    known = known[np.isin(known[:, 2], classes)]
    number = np.searchsorted(classes, known[:, 2]).astype(np.int32)
    index = AnswerIndex.build(known[:, 0], known[:, 1], number, len(graph.relations))
    others = known_from(index, asked[:, 0], asked[:, 1], device)
    every = id_tensor(classes, device)
    # Ranks instead of counts: then classes of equal size do not tie.
    place = id_tensor(np.argsort(np.argsort(-sizes, kind="stable")), device)

    def score(some: slice) -> Tensor:
        candidates = every.expand(len(anchor[some]), -1)
        return model.score_candidates(Side.TAIL, anchor[some], relation[some], candidates)

    def frequency(some: slice) -> Tensor:
        return -place.float().repeat(len(anchor[some]), 1)

    chunk = max(1, budget // (SCORE_BYTES * len(classes)))
    true = id_tensor(np.searchsorted(classes, asked[:, 2]), device)
    return [
        rank_among(by, true, others, Chunks(chunk)).resolve("realistic")
        for by in (score, frequency)
    ]


def _figures(ranks: Floats) -> dict[str, float]:
    found = metrics(ranks)
    return {"accuracy": found["hits@1"], "mrr": found["mrr"], "hits@3": found["hits@3"]}
