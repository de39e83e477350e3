"""Entity classification: what is x? The classes are the tails of a relation such as IsA."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.errors import UserError
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import BUDGET, id_tensor, known_from, metrics, rank_among
from nscaching.models import Model

Floats = npt.NDArray[np.float64]

# Bytes per entity and class at the peak: the scores, a copy, and two masks.
SCORE_BYTES = 16


def classify_entities(
    model: Model, graph: KnowledgeGraph, relation: int, split: str = "test", budget: int = BUDGET
) -> dict[str, Any]:
    """Rank the classes of each x in the triples (x, relation, class) of a split.

    Other known classes of x do not count. A class without a training triple cannot be found and
    ranks last. The baseline ranks the classes by their number of training triples.
    """
    name = graph.relations[relation]
    train, asked = (_of(graph, s, relation) for s in ("train", split))
    classes, sizes = np.unique(train[:, 2], return_counts=True)
    if len(classes) < 2:
        few = "no classes" if not len(classes) else "one class only"
        raise UserError(f"relation {name!r} has {few} in training: there is nothing to choose")
    if not len(asked):
        raise UserError(f"relation {name!r} has no triples in the {split} split")
    found = np.minimum(np.searchsorted(classes, asked[:, 2]), len(classes) - 1)
    seen = classes[found] == asked[:, 2]
    ranks = np.full(len(asked), len(classes) + 1.0)
    common = ranks.copy()
    if seen.any():
        ranks[seen], common[seen] = _rank(
            model, graph, relation, classes, sizes, asked[seen, 0], found[seen], budget
        )
    by_class = {}
    for entity in np.unique(asked[:, 2]):
        of = asked[:, 2] == entity
        by_class[graph.entities[entity]] = {
            "label": graph.label(int(entity)),
            "train": int(sizes[classes == entity].sum()),
            "triples": int(of.sum()),
            **_figures(ranks[of]),
        }
    commonest = int(classes[sizes.argmax()])
    return {
        "task": "entities",
        "relation": name,
        "split": split,
        "classes": len(classes),
        "triples": len(asked),
        "triples_of_unseen_classes": int((~seen).sum()),
        **_figures(ranks),
        "majority": {
            "class": graph.entities[commonest],
            "label": graph.label(commonest),
            **_figures(common),
        },
        "by_class": by_class,
    }


def _of(graph: KnowledgeGraph, split: str, relation: int) -> Ids:
    triples = graph.split(split)
    found: Ids = triples[triples[:, 1] == relation]
    return found


def _rank(
    model: Model,
    graph: KnowledgeGraph,
    relation: int,
    classes: Ids,
    sizes: npt.NDArray[np.int64],
    entity: Ids,
    answer: npt.NDArray[np.int64],
    budget: int,
) -> tuple[Floats, Floats]:
    """Return the ranks of classes[answer] [n] for entities [n]: by the model, by frequency."""
    device = model.entity.device
    anchor, every = id_tensor(entity, device), id_tensor(classes, device)
    asked = torch.full_like(anchor, relation)
    known = np.concatenate([_of(graph, s, relation) for s in SPLITS])
    known = known[np.isin(known[:, 2], classes)]
    number = np.searchsorted(classes, known[:, 2]).astype(np.int32)
    index = AnswerIndex.build(known[:, 0], known[:, 1], number, len(graph.relations))
    others = known_from(index, entity, np.full_like(entity, relation), device)

    def score(some: slice) -> torch.Tensor:
        candidates = every.expand(len(anchor[some]), -1)
        return model.score_candidates(Side.TAIL, anchor[some], asked[some], candidates)

    # Ranks instead of counts: then classes of equal size do not tie.
    place = torch.empty(len(classes))
    place[torch.from_numpy(np.argsort(-sizes, kind="stable"))] = -torch.arange(len(classes) * 1.0)
    place = place.to(device)

    def frequency(some: slice) -> torch.Tensor:
        return place.repeat(len(anchor[some]), 1)

    chunk = max(1, budget // (SCORE_BYTES * len(classes)))
    true = id_tensor(answer, device)
    by_model, by_frequency = (
        rank_among(by, true, others, Chunks(chunk)).resolve("realistic")
        for by in (score, frequency)
    )
    return by_model, by_frequency


def _figures(ranks: Floats) -> dict[str, float]:
    found = metrics(ranks)
    return {"accuracy": found["hits@1"], "mrr": found["mrr"], "hits@3": found["hits@3"]}
