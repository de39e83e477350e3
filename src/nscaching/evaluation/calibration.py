"""Scores → probabilities. NumPy alone: a prediction need not wait for anything else."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids
from nscaching.errors import UserError, flag

Floats = npt.NDArray[np.float64]

MOST_ODDS = 30.0  # bounds the log-odds: no probability is rounded to 0 or 1


class Sigmoid(NamedTuple):
    """Log-odds as a line of the score; the slope is not negative."""

    slope: float
    offset: float


@dataclass(frozen=True)
class Calibration:
    """The chance that a triple is true, by its score and its relation.

    The sigmoid of a relation gives log-odds, which the curve of all relations then bends. Neither
    decreases: of two triples of a relation, the one with the higher score is no less probable.
    """

    everywhere: Sigmoid  # for relations with too few validation triples
    by_relation: dict[int, Sigmoid]
    curve: tuple[Floats, Floats]  # log-odds before and after [knots], ascending; none: no bending
    prior: float  # share of true triples among those that it was fitted on
    triples: int  # how many these were
    negatives: str  # where the false ones came from

    def log_odds(self, scores: Floats, relations: Ids, prior: float | None = None) -> Floats:
        """Return the log-odds [n] of triples with these scores and relations [n]."""
        lines = np.array([self.by_relation.get(int(r), self.everywhere) for r in relations])
        slope, offset = lines.reshape(-1, 2).T
        with np.errstate(over="ignore"):
            odds = np.clip(slope * scores + offset, -MOST_ODDS, MOST_ODDS)
        if len(self.curve[0]):
            odds = np.interp(odds, *self.curve)
        if prior is not None:
            odds = odds + logit(checked_prior(prior)) - logit(self.prior)
        bounded: Floats = np.clip(odds, -MOST_ODDS, MOST_ODDS)
        return bounded

    def probabilities(self, scores: Floats, relations: Ids, prior: float | None = None) -> Floats:
        """Return the probability [n] of each triple, between 0 and 1.

        ``prior`` is the share of true triples among those that are asked; None: as among the
        validation triples.
        """
        return logistic(self.log_odds(scores, relations, prior))


def logistic(odds: Floats) -> Floats:
    return 0.5 + 0.5 * np.tanh(odds / 2)  # which never overflows


def logit(share: float) -> float:
    return float(np.log(share) - np.log1p(-share))


def checked_prior(prior: float) -> float:
    if not 0 < prior < 1:
        raise UserError(f"{flag('prior')} must be above 0 and below 1, not {prior}")
    return prior
