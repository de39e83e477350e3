"""Entity linking: are a and b the same? By score of (a, EqualTo, b), and by their vectors."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph, Labelled
from nscaching.data.index import Ids
from nscaching.errors import UserError
from nscaching.evaluation.classify import (
    best_threshold,
    judgement,
    score_triples,
    with_negatives,
)  # fmt: skip
from nscaching.evaluation.ranking import Floats, id_tensor, row_by_row, triples_of
from nscaching.models import Model


def link_entities(
    model: Model, graph: KnowledgeGraph, relation: int, split: str = "test"
) -> dict[str, Any]:
    """Tell pairs of the same thing from pairs of different things, by score and by similarity.

    Each of the two has a threshold fitted on the validation pairs of the relation.
    """
    valid, asked = (labelled_pairs(graph, s, relation) for s in ("valid", split))
    report: dict[str, Any] = {
        "task": "linking",
        "relation": graph.relations[relation],
        "split": split,
        "triples": len(asked.truth),
        "true": int(asked.truth.sum()),
        "validation_triples": len(valid.truth),
        "negatives": asked.origin,
    }
    for name, judge in (("by_score", score_triples), ("by_similarity", similarity)):
        threshold = best_threshold(judge(model, valid.triples), valid.truth)
        said = judge(model, asked.triples) >= threshold
        report[name] = {"threshold": threshold, **judgement(said, asked.truth)}
    return report


def labelled_pairs(graph: KnowledgeGraph, split: str, relation: int) -> Labelled:
    """Return true and false pairs of a split: from the data set's files, else made by seed.

    "The same" is symmetric and transitive: a pair that follows from known pairs is no negative.
    """
    if split in graph.labelled:
        given = graph.labelled[split]
        of = given.triples[:, 1] == relation
        pairs = Labelled(given.triples[of], given.truth[of], given.origin)
    else:
        group = _groups(graph, relation)

        def different(pair: Ids, column: int, seen: Ids) -> Ids:
            left: Ids = seen[group[seen] != group[pair[2 - column]]]
            return left

        pairs = with_negatives(graph, triples_of(graph, relation, (split,)), different)
    yes = int(pairs.truth.sum())
    if not yes or yes == len(pairs.truth):
        raise UserError(
            f"too few triples of {graph.relations[relation]!r} in the {split} split: "
            f"{yes} true and {len(pairs.truth) - yes} false ones; linking needs both"
        )
    return pairs


def _groups(graph: KnowledgeGraph, relation: int) -> npt.NDArray[np.int64]:
    """Return for each entity [|E|] the number of its group: known pairs join their entities."""
    parent = list(range(len(graph.entities)))

    def root(entity: int) -> int:
        while parent[entity] != entity:
            parent[entity] = entity = parent[parent[entity]]
        return entity

    for head, _, tail in triples_of(graph, relation).tolist():
        parent[root(head)] = root(tail)
    return np.array([root(entity) for entity in range(len(parent))], dtype=np.int64)


def similarity(model: Model, triples: Ids, piece: int = 65536) -> Floats:
    """Return the cosine of head and tail of triples [n, 3]."""
    columns = id_tensor(triples[:, [0, 2]], model.entity.device)

    def cosine(some: slice) -> Tensor:
        head, tail = (model.entity_rows(ids).double() for ids in columns[some].unbind(1))
        return (F.normalize(head, dim=-1) * F.normalize(tail, dim=-1)).sum(-1)

    return row_by_row(len(columns), cosine, "triples", piece)
