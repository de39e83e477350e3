"""Triplet classification: is a triple true? A threshold per relation decides."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph, Labelled
from nscaching.data.index import Ids, Side
from nscaching.errors import UserError
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import id_tensor
from nscaching.models import Model, finite

Scores = npt.NDArray[np.float64]
Truth = npt.NDArray[np.bool_]

# Seed of generated negatives: fixed, so that all runs on a graph are judged by the same triples.
NEGATIVE_SEED = 2019


@dataclass(frozen=True)
class Thresholds:
    """A triple counts as true if its score is at least the threshold of its relation."""

    by_relation: dict[int, float]
    fallback: float
    """For relations without validation triples."""

    def of(self, relations: Ids) -> Scores:
        """Return the threshold of each relation id [n]."""
        return np.array([self.by_relation.get(int(r), self.fallback) for r in relations])


def labelled_triples(graph: KnowledgeGraph, split: str) -> Labelled:
    """Return true and false triples of a split: from the data set's files, or else made by seed.

    A made negative replaces the head or the tail by an entity that stands on the same side of the
    relation in training, if there is one that makes no known triple.
    """
    if split in graph.labelled and len(graph.labelled[split].truth):
        return graph.labelled[split]
    triples = graph.split(split)
    if not len(triples):
        raise UserError(f"the {split} split of {graph.name} is empty: there is nothing to classify")
    random = np.random.default_rng(NEGATIVE_SEED)
    false = triples.copy()
    seen: dict[tuple[int, int], Ids] = {}  # (relation, column) → the entities there in training
    for row, (head, relation, tail) in enumerate(triples):
        side = Side.HEAD if random.random() < 0.5 else Side.TAIL
        column = 0 if side is Side.HEAD else 2
        anchor, _ = side.query(head, tail)
        taken = graph.filter_index[side].known(np.array([anchor]), np.array([relation]))[1]
        if (relation, column) not in seen:
            seen[relation, column] = np.unique(graph.train[graph.train[:, 1] == relation, column])
        choice = np.setdiff1d(seen[relation, column], taken, assume_unique=True)
        if not len(choice):
            choice = np.setdiff1d(np.arange(len(graph.entities)), taken)
        if len(choice):
            false[row, column] = random.choice(choice)
    made = (false != triples).any(axis=1)  # all entities may be answers: then there is no negative
    both = np.concatenate([triples, false[made]])
    truth = np.arange(len(both)) < len(triples)
    return Labelled(both, truth, f"made by seed {NEGATIVE_SEED}")


@torch.no_grad()
def score_triples(model: Model, triples: Ids, piece: int = 65536) -> Scores:
    """Score triples [n, 3]."""
    columns = id_tensor(triples, model.entity.device)

    def score(some: slice) -> Tensor:
        return model.score(*columns[some].unbind(1)).double().cpu()

    chunks = Chunks(min(piece, max(1, len(columns))), "triples")
    parts = [part for _, part in chunks.over(len(columns), score)]
    return finite(torch.cat([torch.empty(0, dtype=torch.float64), *parts])).numpy()


def fitted_thresholds(model: Model, graph: KnowledgeGraph) -> Thresholds:
    """Fit the thresholds on the validation triples."""
    valid = labelled_triples(graph, "valid")
    return fit_thresholds(score_triples(model, valid.triples), valid.truth, valid.triples[:, 1])


def fit_thresholds(scores: Scores, truth: Truth, relations: Ids) -> Thresholds:
    """Fit the threshold of the best accuracy for each relation and over all."""
    by_relation = {
        int(r): best_threshold(scores[relations == r], truth[relations == r])
        for r in np.unique(relations)
    }
    return Thresholds(by_relation, best_threshold(scores, truth))


def best_threshold(scores: Scores, truth: Truth) -> float:
    """Return the threshold σ with most right answers to "score ≥ σ", between two scores."""
    order = np.argsort(-scores, kind="stable")
    ordered, right = scores[order], np.where(truth[order], 1, -1)
    # gain[k]: right answers won by calling the k highest true, against calling none true
    gain = np.concatenate([[0], np.cumsum(right)])
    between_equals = np.zeros(len(gain), dtype=bool)
    between_equals[1:-1] = ordered[1:] == ordered[:-1]
    k = int(np.argmax(np.where(between_equals, gain.min() - 1, gain)))
    if k == 0:  # the next number above; near zero a number that is not flushed to zero
        return float(ordered[0] + np.finfo(np.float64).eps * max(1.0, abs(ordered[0])))
    if k == len(ordered):
        return float(ordered[-1])
    middle = float((ordered[k - 1] + ordered[k]) / 2)
    # The mean of two adjacent floating-point numbers may be rounded to the lower one.
    return middle if middle > ordered[k] else float(ordered[k - 1])


def judgement(said: Truth, truth: Truth) -> dict[str, Any]:
    """Return the accuracy of what was said, and the four counts behind it."""
    return {
        "accuracy": float((said == truth).mean()),
        "true_positives": int((said & truth).sum()),
        "false_positives": int((said & ~truth).sum()),
        "true_negatives": int((~said & ~truth).sum()),
        "false_negatives": int((~said & truth).sum()),
    }


def classify(model: Model, graph: KnowledgeGraph, split: str = "test") -> dict[str, Any]:
    """Fit the thresholds on the validation triples and report the accuracy on a split."""
    thresholds, asked = fitted_thresholds(model, graph), labelled_triples(graph, split)
    relations = asked.triples[:, 1]
    said = score_triples(model, asked.triples) >= thresholds.of(relations)
    right = said == asked.truth
    by_relation = {
        graph.relations[r]: {
            "accuracy": float(right[relations == r].mean()),
            "triples": int((relations == r).sum()),
            "threshold": thresholds.by_relation.get(int(r), thresholds.fallback),
        }
        for r in np.unique(relations)
    }
    return {
        "split": split,
        "triples": len(right),
        **judgement(said, asked.truth),
        "negatives": asked.origin,
        "fallback_threshold": thresholds.fallback,
        "relations_on_fallback": len(np.setdiff1d(relations, list(thresholds.by_relation))),
        "by_relation": by_relation,
    }
