"""Fits a calibration on validation triples: a sigmoid per relation, an isotonic curve for all."""

from dataclasses import replace

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids
from nscaching.evaluation.calibrate_answers import fit_answers
from nscaching.evaluation.calibration import Calibration, Sigmoid, logit
from nscaching.evaluation.classify import Truth, score_triples
from nscaching.evaluation.labelled import has_validation, labelled_triples
from nscaching.evaluation.logistic_fit import most_likely
from nscaching.evaluation.ranking import rows_by
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.torch_scores import TorchScores
from nscaching.models import Model

MOST = 50_000  # true validation triples that are used, and as many false ones
LEAST = 10  # true triples, and false ones, of a relation that has a sigmoid of its own
CURVE_FROM = 1000  # triples; fewer make a curve that follows chance

NO_CURVE = (np.empty(0), np.empty(0))
LEAST_SPAN = 1e-300  # of scores that a sigmoid can tell apart


def calibrate(model: Model, graph: KnowledgeGraph) -> Calibration | None:
    """Fit on the validation triples and their negatives; None if there are none of either."""
    if not has_validation(graph):
        return None
    valid = labelled_triples(graph, "valid", MOST)
    if valid.truth.all():
        return None
    scores = score_triples(model, valid.triples)
    found = fit_calibration(scores, valid.truth, valid.triples[:, 1], valid.origin)
    return replace(found, answers=fit_answers(TorchScores(model), graph, found))


def fit_calibration(scores: Floats, truth: Truth, relations: Ids, negatives: str) -> Calibration:
    """Fit on scores and truth values [n], which must hold true triples and false ones."""
    everywhere, by_relation = fit_sigmoid(scores, truth), {}
    for relation, rows in rows_by(relations):
        yes = int(truth[rows].sum())
        if min(yes, len(rows) - yes) >= LEAST:
            by_relation[relation] = fit_sigmoid(scores[rows], truth[rows])
    prior = float(truth.mean())
    found = Calibration(everywhere, by_relation, NO_CURVE, prior, len(truth), negatives)
    if len(truth) < CURVE_FROM:
        return found
    curve = fit_curve(found.log_odds(scores, relations), truth)
    return Calibration(everywhere, by_relation, curve, prior, len(truth), negatives)


def fit_sigmoid(scores: Floats, truth: Truth) -> Sigmoid:
    """Return Platt's sigmoid: the line of log-odds of the highest likelihood.

    Platt's targets, a little inside of 0 and 1, keep the line finite. Where a higher score is no
    sign of truth, the slope is 0.
    """
    yes, no = int(truth.sum()), int((~truth).sum())
    target = np.where(truth, (yes + 1) / (yes + 2), 1 / (no + 2))
    flat = Sigmoid(0.0, logit(float(target.mean())))
    low = float(scores.min())
    span = float(scores.max()) - low
    if not LEAST_SPAN < span < 1 / LEAST_SPAN:  # nearly equal, or beyond all numbers
        return flat
    x = (scores - low) / span
    centre = float(x.mean())
    offset, slope = most_likely((x - centre)[:, np.newaxis], target)[0]
    if slope <= 0:
        return flat
    return Sigmoid(slope / span, offset - slope * (low / span + centre))


def fit_curve(odds: Floats, truth: Truth) -> tuple[Floats, Floats]:
    """Return the isotonic curve from log-odds to log-odds, a knot for each level of it.

    One more true triple at the low end and a false one at the high end keep the ends finite.
    """
    at, row = np.unique(odds, return_inverse=True)
    count = np.bincount(row).astype(np.float64)
    yes: Floats = np.bincount(row, truth).astype(np.float64)
    count[0] += 1
    yes[0] += 1
    count[-1] += 1
    share, where = pool_adjacent_violators(yes, count, at)
    return where, np.log(share) - np.log1p(-share)


def pool_adjacent_violators(yes: Floats, count: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Return the levels of the nearest ascending sequence of shares, and the mean place of each.

    Nearest to the shares yes / count [n] by squares that count weighs; the places [n] ascend.
    Whole numbers are compared, so equal shares are one level whatever the rounding.
    """
    blocks: list[tuple[float, float, float]] = []  # sums of count, yes, count·place
    for size, true, place in np.stack([count, yes, count * places]).T.tolist():
        while blocks and blocks[-1][1] * size >= true * blocks[-1][0]:
            before = blocks.pop()
            size, true, place = before[0] + size, before[1] + true, before[2] + place
        blocks.append((size, true, place))
    size, true, place = np.array(blocks).T
    return true / size, place / size
