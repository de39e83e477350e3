"""Entity linking: are a and b the same? By score of (a, EqualTo, b), and by their vectors."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from nscaching.data.graph import SPLITS, KnowledgeGraph, Labelled
from nscaching.data.index import Ids
from nscaching.errors import UserError
from nscaching.evaluation.classify import (
    NEGATIVE_SEED,
    Scores,
    best_threshold,
    judgement,
    score_triples,
)  # fmt: skip
from nscaching.evaluation.ranking import id_tensor
from nscaching.models import Model, finite


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
    """Return true and false pairs of a split: from the data set's files, else made by seed."""
    if split in graph.labelled:
        given = graph.labelled[split]
        of = given.triples[:, 1] == relation
        pairs = Labelled(given.triples[of], given.truth[of], given.origin)
    else:
        triples = graph.split(split)
        true = triples[triples[:, 1] == relation]
        false = _negatives(graph, true, relation)
        truth = np.arange(len(true) + len(false)) < len(true)
        pairs = Labelled(np.concatenate([true, false]), truth, f"made by seed {NEGATIVE_SEED}")
    yes = int(pairs.truth.sum())
    if not yes or yes == len(pairs.truth):
        raise UserError(
            f"too few triples of {graph.relations[relation]!r} in the {split} split: "
            f"{yes} true and {len(pairs.truth) - yes} false ones; linking needs both"
        )
    return pairs


def _negatives(graph: KnowledgeGraph, true: Ids, relation: int) -> Ids:
    """Replace one side of each pair by an entity that stands on this side in training.

    "The same" is symmetric and transitive: a pair that follows from known pairs is no negative.
    A pair for which no entity is left gets no negative.
    """
    group = _groups(graph, relation)
    train = graph.train[graph.train[:, 1] == relation]
    choices = {column: np.unique(train[:, column]) for column in (0, 2)}
    random = np.random.default_rng(NEGATIVE_SEED)
    made = []
    for triple in true:
        column = 0 if random.random() < 0.5 else 2
        choice = choices[column]
        choice = choice[group[choice] != group[triple[2 - column]]]
        if len(choice):
            false = triple.copy()
            false[column] = random.choice(choice)
            made.append(false)
    return np.array(made, dtype=np.int32).reshape(-1, 3)


def _groups(graph: KnowledgeGraph, relation: int) -> npt.NDArray[np.int64]:
    """Return for each entity [|E|] the number of its group: known pairs join their entities."""
    parent = list(range(len(graph.entities)))

    def root(entity: int) -> int:
        while parent[entity] != entity:
            parent[entity] = entity = parent[parent[entity]]
        return entity

    for split in SPLITS:
        triples = graph.split(split)
        for head, _, tail in triples[triples[:, 1] == relation].tolist():
            parent[root(head)] = root(tail)
    return np.array([root(entity) for entity in range(len(parent))], dtype=np.int64)


@torch.no_grad()
def similarity(model: Model, triples: Ids, piece: int = 65536) -> Scores:
    """Return the cosine of head and tail of triples [n, 3]."""
    columns = id_tensor(triples, model.entity.device)
    parts = []
    for part in columns.split(piece):
        head, tail = (
            F.normalize(model.entity_rows(side).double(), dim=-1)
            for side in (part[:, 0], part[:, 2])
        )
        parts.append((head * tail).sum(-1).cpu())
    return finite(torch.cat(parts)).numpy()
