"""Rankings among few candidates: the relations of (h, ?, t), the classes of an entity."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Longs, Side
from nscaching.errors import UserError
from nscaching.evaluation import ranking
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import ask, rank_among, rows_by, triples_of
from nscaching.evaluation.ranks import Floats, metrics
from nscaching.models import Model

TEMPORARIES = 6  # tensors [pairs, relations, D] that the score of a triple holds at its peak
SCORE_BYTES = 16  # per entity and class at the peak: the scores, a copy, and two masks


def evaluate_relations(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Rank the relation of each triple of a split; report the metrics overall and by relation.

    Filtered: other relations known between the two entities, in any split, do not count. The
    options are those of ``ranking.Options``.
    """
    how = ranking.Options(**options)
    head, relation, tail = ranking.non_empty(graph, split).T
    index = None
    if how.filtered:
        h, r, t = np.concatenate([graph.split(s) for s in SPLITS]).T
        index = AnswerIndex.build(h, t, r, len(graph.entities))
    piece = _pairs_at_once(model, how.budget)
    ranks = rank_among(
        lambda heads, tails: relation_scores(model, heads, tails, how.budget),
        ask(head, tail, relation, index, model.entity.device),
        Chunks(max(1, piece // model.own_relations)),
        how.progress,
    ).resolve(how.ties)
    by_relation = {
        graph.relations[r]: {"triples": len(rows), **metrics(ranks[rows])}
        for r, rows in rows_by(relation)
    }
    asked = {"task": "relations", "split": split, **how.said()}
    counts = {"candidates": len(graph.relations), "triples": len(ranks)}
    return {**asked, **counts, **metrics(ranks), "by_relation": by_relation}


def _pairs_at_once(model: Model, budget: int) -> int:
    """Return how many (entity pair, relation) to score at once."""
    width = max(model.entity[0].numel(), model.relation[0].numel())
    return max(1, budget // (4 * TEMPORARIES * width))


def relation_scores(
    model: Model, head: Tensor, tail: Tensor, budget: int = ranking.BUDGET
) -> Tensor:
    """Score every relation between heads [n] and tails [n]: [n, |R|]."""
    piece = _pairs_at_once(model, budget)
    every = torch.arange(model.own_relations, device=head.device).unsqueeze(0)
    head, tail = head.unsqueeze(1), tail.unsqueeze(1)
    parts = every.split(max(1, piece // len(head)), dim=1)
    return torch.cat([model.score(head, part, tail) for part in parts], dim=1)


def classify_entities(
    model: Model, graph: KnowledgeGraph, relation: int, split: str = "test"
) -> dict[str, Any]:
    """Rank the classes of each x in the triples (x, relation, class) of a split.

    Other known classes of x do not count. A class without a training triple cannot be found and
    ranks last. The baseline ranks the classes by their number of training triples.
    """
    name = graph.relations[relation]
    train, asked = (triples_of(graph, relation, (s,)) for s in ("train", split))
    classes, sizes = np.unique(train[:, 2], return_counts=True)
    if len(classes) < 2:
        raise UserError(f"relation {name!r} has fewer than two classes in training to choose from")
    if not len(asked):
        raise UserError(f"relation {name!r} has no triples in the {split} split")
    seen = np.isin(asked[:, 2], classes)
    ranks, common = np.full((2, len(asked)), len(classes) + 1.0)
    if seen.any():
        ranks[seen], common[seen] = _rank(model, graph, asked[seen], classes, sizes)
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
    model: Model, graph: KnowledgeGraph, asked: Ids, classes: Ids, sizes: Longs
) -> tuple[Floats, Longs]:
    """Rank the tails of triples [n, 3] among the classes: by the model, and by frequency."""
    number = np.full(len(graph.entities), -1, dtype=np.int32)  # of a class among the classes
    number[classes] = np.arange(len(classes))
    known = triples_of(graph, asked[0, 1])
    head, relation, tail = known[number[known[:, 2]] >= 0].T
    index = AnswerIndex.build(head, relation, number[tail], len(graph.relations))
    heads, relations, true = asked[:, 0], asked[:, 1], number[asked[:, 2]]
    every = ranking.id_tensor(classes, model.entity.device)

    def score(head: Tensor, relation: Tensor) -> Tensor:
        return model.score_candidates(Side.TAIL, head, relation, every.expand(len(head), -1))

    queries = ask(heads, relations, true, index, every.device)
    chunks = Chunks(max(1, ranking.BUDGET // (SCORE_BYTES * len(classes))))
    # Places instead of counts: then classes of equal size do not tie.
    place = np.argsort(np.argsort(-sizes, kind="stable"))
    row, other = index.known(heads, relations)
    left_out = np.bincount(row[place[other] < place[true[row]]], minlength=len(true))
    return rank_among(score, queries, chunks).resolve("realistic"), 1 + place[true] - left_out


def _figures(ranks: Floats) -> dict[str, float]:
    found = metrics(ranks)
    return {"accuracy": found["hits@1"], "mrr": found["mrr"], "hits@3": found["hits@3"]}
