"""Is a triple true? Are a and b the same? A threshold fitted on validation triples decides."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph, Labelled
from nscaching.data.index import Ids
from nscaching.errors import UserError
from nscaching.evaluation.calibration import Calibration
from nscaching.evaluation.labelled import (
    described,
    given_triples,
    has_labelled,
    labelled_triples,
    with_negatives,
)
from nscaching.evaluation.ranking import row_by_row, rows_by, triples_of
from nscaching.evaluation.ranks import Floats
from nscaching.models import Model

Truth = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Thresholds:
    """A triple counts as true if its score is at least the threshold of its relation."""

    by_relation: dict[int, float]
    fallback: float  # for relations without validation triples

    def of(self, relations: Ids) -> Floats:
        return np.array([self.by_relation.get(int(r), self.fallback) for r in relations])


def score_triples(model: Model, triples: Ids) -> Floats:
    return row_by_row(model, triples, lambda some: model.score(*some.unbind(1)), "triples")


def fitted_thresholds(model: Model, valid: Labelled) -> Thresholds:
    return fit_thresholds(score_triples(model, valid.triples), valid.truth, valid.triples[:, 1])


def fit_thresholds(scores: Floats, truth: Truth, relations: Ids) -> Thresholds:
    by_relation = {r: best_threshold(scores[rows], truth[rows]) for r, rows in rows_by(relations)}
    return Thresholds(by_relation, best_threshold(scores, truth))


def best_threshold(scores: Floats, truth: Truth) -> float:
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
    return {
        "accuracy": float((said == truth).mean()),
        "true_positives": int((said & truth).sum()),
        "false_positives": int((said & ~truth).sum()),
        "true_negatives": int((~said & ~truth).sum()),
        "false_negatives": int((~said & truth).sum()),
    }


def classify(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    calibration: Calibration | None = None,
    prior: float | None = None,
) -> dict[str, Any]:
    """Fit the thresholds on the validation triples and report the accuracy on a split.

    With a calibration, a threshold has its probability beside it; ``prior`` is that of
    ``Calibration.probabilities``.
    """
    valid = labelled_triples(graph, "valid")
    asked = valid if split == "valid" else labelled_triples(graph, split)
    thresholds = fitted_thresholds(model, valid)
    relations = asked.triples[:, 1]
    said = score_triples(model, asked.triples) >= thresholds.of(relations)
    right = said == asked.truth
    by_relation = {
        graph.relations[r]: {
            "accuracy": float(right[rows].mean()),
            "triples": len(rows),
            "threshold": thresholds.by_relation.get(r, thresholds.fallback),
        }
        for r, rows in rows_by(relations)
    }
    stated = {}
    if calibration is not None:
        stated["prior"] = calibration.prior if prior is None else prior
        at = np.array([part["threshold"] for part in by_relation.values()])
        chances = calibration.probabilities(at, np.unique(relations), prior)
        for part, chance in zip(by_relation.values(), chances.tolist(), strict=True):
            part["threshold_probability"] = chance
    return {
        "split": split,
        **stated,
        "triples": len(right),
        **judgement(said, asked.truth),
        **described(asked),
        "validation": described(valid),
        "fallback_threshold": thresholds.fallback,
        "relations_on_fallback": len(np.setdiff1d(relations, list(thresholds.by_relation))),
        "by_relation": by_relation,
    }


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
        "validation_triples": len(valid.truth),
        **described(asked),
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
    if has_labelled(graph, split):
        pairs = given_triples(graph, split, relation)
    else:
        triples, group = triples_of(graph, relation, (split,)), _groups(graph, relation)
        pairs = with_negatives(
            graph, triples, lambda pair, at, seen: seen[group[seen] != group[pair[2 - at]]]
        )
    yes = int(pairs.truth.sum())
    if not yes or yes == len(pairs.truth):
        raise UserError(
            f"too few triples of {graph.relations[relation]!r} in the {split} split: "
            f"{yes} true and {len(pairs.truth) - yes} false ones; linking needs both"
        )
    return pairs


def _groups(graph: KnowledgeGraph, relation: int) -> npt.NDArray[np.int64]:
    """Return for each entity [|E|] the least entity of its group: known pairs join groups."""
    group = np.arange(len(graph.entities))
    head, _, tail = triples_of(graph, relation).T
    while (group[head] != group[tail]).any():
        least = np.minimum(group[head], group[tail])
        for side in (head, tail):
            np.minimum.at(group, group[side], least)
        group = group[group]  # long chains end after few rounds
    return group


def similarity(model: Model, triples: Ids) -> Floats:
    """Return the cosine of head and tail of triples [n, 3]."""

    def cosine(pairs: Tensor) -> Tensor:
        head, tail = (model.entity_rows(ids).double() for ids in pairs.unbind(1))
        return (F.normalize(head, dim=-1) * F.normalize(tail, dim=-1)).sum(-1)

    return row_by_row(model, triples[:, [0, 2]], cosine, "triples")
