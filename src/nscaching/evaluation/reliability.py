"""How far probabilities can be trusted: of triples with probability p, a share p should be true."""

from typing import Any

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.evaluation.calibrate import MOST
from nscaching.evaluation.calibrate_answers import judged_answers
from nscaching.evaluation.calibration import Calibration
from nscaching.evaluation.classify import Truth, score_triples
from nscaching.evaluation.labelled import described, labelled_triples
from nscaching.evaluation.ranking import rows_by
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.torch_scores import TorchScores
from nscaching.models import Model

BINS = 15  # of equal width
SEED = 1  # of the queries


def evaluate_calibration(
    model: Model,
    graph: KnowledgeGraph,
    calibration: Calibration,
    split: str = "test",
    prior: float | None = None,
) -> dict[str, Any]:
    """Compare the probabilities of a split's triples and negatives with their truth.

    ``prior`` is that of ``Calibration.probabilities``; the triples are weighted so that this share
    of them is true.
    """
    asked = labelled_triples(graph, split, MOST)
    relations = asked.triples[:, 1]
    scores = score_triples(model, asked.triples)
    chances = calibration.probabilities(scores, relations, prior)
    weights = _weights(asked.truth, prior)
    by_relation = {
        graph.relations[r]: {
            "triples": len(rows),
            "own": r in calibration.by_relation,
            **_summary(chances[rows], asked.truth[rows], weights[rows]),
        }
        for r, rows in rows_by(relations)
    }
    return {
        "task": "calibration",
        "split": split,
        "triples": len(chances),
        **described(asked),
        "prior": calibration.prior if prior is None else prior,
        **_summary(chances, asked.truth, weights),
        "expected_calibration_error": calibration_error(chances, asked.truth, weights),
        "answers": None if prior is not None else judge_answers(model, graph, calibration, split),
        "possible_bins": BINS,
        "bins": reliability(chances, asked.truth, weights),
        "fitted_on": {
            "triples": calibration.triples,
            "prior": calibration.prior,
            "negatives": calibration.negatives,
            "relations": len(calibration.by_relation),
        },
        "relations_on_fallback": sum(not part["own"] for part in by_relation.values()),
        "by_relation": by_relation,
    }


def judge_answers(
    model: Model, graph: KnowledgeGraph, calibration: Calibration, split: str
) -> dict[str, Any] | None:
    """Compare the chances of the best answers for an entity with how many of them are right.

    The queries are those of the split's triples, at most 1,000 for heads and for tails. None if
    there are no chances of answers.
    """
    scores, chances, right, first, queries = TorchScores(model), [], [], [], 0
    for gap in {0, 2} & calibration.answers.keys():
        judged = judged_answers(scores, graph, split, gap, SEED)
        odds = calibration.log_odds(judged.evidence.score, judged.evidence.relation)
        chances.append(calibration.answers[gap].probabilities(odds, judged.evidence))
        right.append(judged.right)
        first.append(judged.evidence.log_rank == 0)
        queries += judged.queries
    if not queries:
        return None
    p, truth, best = (np.concatenate(parts) for parts in (chances, right, first))
    equal = np.ones(len(p))
    return {
        "queries": queries,
        "answers": len(p),
        **_summary(p, truth, equal),
        "expected_calibration_error": calibration_error(p, truth, equal),
        "best": _summary(p[best], truth[best], equal[best]),
    }


def _weights(truth: Truth, prior: float | None) -> Floats:
    share, weights = truth.mean(), np.ones(len(truth))
    if prior is not None and 0 < share < 1:
        weights[truth], weights[~truth] = prior / share, (1 - prior) / (1 - share)
    return weights


def _summary(chances: Floats, truth: Truth, weights: Floats) -> dict[str, float]:
    return {
        "probability": float(np.average(chances, weights=weights)),
        "share": float(np.average(truth, weights=weights)),
        "brier": float(np.average((chances - truth) ** 2, weights=weights)),
    }


def reliability(
    chances: Floats, truth: Truth, weights: Floats, bins: int = BINS
) -> list[dict[str, Any]]:
    """Return for each bin of probabilities its mean probability and its share of true triples."""
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    return [
        {
            "from": i / bins,
            "to": (i + 1) / bins,
            "triples": len(rows),
            "weight": float(weights[rows].sum() / weights.sum()),
            "probability": float(np.average(chances[rows], weights=weights[rows])),
            "share": float(np.average(truth[rows], weights=weights[rows])),
        }
        for i, rows in rows_by(place)
    ]


def calibration_error(chances: Floats, truth: Truth, weights: Floats, bins: int = BINS) -> float:
    """Return the mean distance, over triples, of a bin's probability and its share."""
    found = reliability(chances, truth, weights, bins)
    return float(sum(one["weight"] * abs(one["probability"] - one["share"]) for one in found))
