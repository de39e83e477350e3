"""Scores → probabilities. NumPy alone: a prediction need not wait for anything else."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Ids
from nscaching.errors import UserError, flag

Floats = npt.NDArray[np.float64]

TOO_LARGE = 1e300  # of a number in a file
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


def add_probabilities(
    calibration: Calibration | None,
    answers: list[dict[str, Any]],
    relations: Ids,
    prior: float | None,
) -> dict[str, float | None]:
    """Add the probability to answers that have a score; return the prior. None: not known."""
    if calibration is None:
        if prior is not None:
            what = "there are no validation triples to fit probabilities on"
            raise UserError(f"{flag('prior')} {prior}: {what}")
        for answer in answers:
            answer["probability"] = None
        return {"prior": None}
    scores = np.array([answer["score"] for answer in answers])
    chances = calibration.probabilities(scores, relations, prior)
    for answer, chance in zip(answers, chances.tolist(), strict=True):
        answer["probability"] = chance
    return {"prior": calibration.prior if prior is None else prior}


def logistic(odds: Floats) -> Floats:
    return 0.5 + 0.5 * np.tanh(odds / 2)  # which never overflows


def logit(share: float) -> float:
    return float(np.log(share) - np.log1p(-share))


def checked_prior(prior: float) -> float:
    if not 0 < prior < 1:
        raise UserError(f"{flag('prior')} must be above 0 and below 1, not {prior}")
    return prior


def to_values(fitted: Calibration) -> dict[str, Any]:
    """Return a calibration as values of JSON, which keeps every bit of a number."""
    return {
        "triples": fitted.triples,
        "prior": fitted.prior,
        "negatives": fitted.negatives,
        "everywhere": fitted.everywhere,
        "by_relation": fitted.by_relation,
        "curve": [part.tolist() for part in fitted.curve],
    }


def from_values(values: Any, relations: int) -> Calibration:  # noqa: ANN401
    """Return the calibration that some JSON holds; any wrong value raises an error.

    An AttributeError, KeyError, TypeError or ValueError: the caller knows the name of the file.
    """
    if not all(re.fullmatch(r"0|[1-9]\d{0,9}", key) for key in values["by_relation"]):
        raise ValueError
    by_relation = {int(key): _line(line) for key, line in values["by_relation"].items()}
    before, after = (np.array(_numbers(part)) for part in values["curve"])
    (prior,), everywhere = _numbers([values["prior"]]), _line(values["everywhere"])
    of = values["triples"], values["negatives"]
    found = Calibration(everywhere, by_relation, (before, after), prior, *of)
    usual = (
        len(before) == len(after)
        and (np.diff(before) > 0).all()
        and (np.diff(after) >= 0).all()
        and all(relation < relations for relation in by_relation)
        and 0 < found.prior < 1
        and type(found.triples) is int
        and found.triples > 0
        and isinstance(found.negatives, str)
    )
    if not usual:
        raise ValueError
    found.negatives.encode()  # lone surrogates, which JSON may hold, cannot be shown
    return found


def _line(value: Any) -> Sigmoid:  # noqa: ANN401
    slope, offset = _numbers(value)
    if slope < 0:
        raise ValueError
    return Sigmoid(slope, offset)


def _numbers(values: Any) -> list[float]:  # noqa: ANN401
    if not all(type(x) in (int, float) and abs(x) < TOO_LARGE for x in values):
        raise ValueError
    return [float(x) for x in values]
