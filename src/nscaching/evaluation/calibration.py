"""Scores → probabilities. NumPy alone: a prediction need not wait for anything else."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nscaching.data.index import Ids
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.shortlist import Evidence

TOO_LARGE = 1e300  # of a number in a file
MOST_ODDS = 30.0  # bounds the log-odds: no probability is rounded to 0 or 1


class Sigmoid(NamedTuple):
    """Log-odds as a line of the score; the slope is not negative."""

    slope: float
    offset: float


@dataclass(frozen=True)
class AnswerChances:
    """The chance that one of the best answers to a query is right.

    Log-odds are a weighted sum: the best answers of all entities are nearly all wrong, however
    plausible the triple, and their order and lead over the others say how far that holds.
    """

    constant: float
    odds: float  # weight of the log-odds of the triple
    log_rank: float
    log_share: float
    by_relation: Mapping[int, float]  # added to the constant
    queries: int  # of the validation triples, that it was fitted on

    def probabilities(self, odds: Floats, evidence: Evidence) -> Floats:
        """Return the probability [k] of the answers, by the log-odds [k] of their triples."""
        own = np.array([self.by_relation.get(int(r), 0.0) for r in evidence.relation])
        parts = self.odds * odds, self.log_rank * evidence.log_rank
        total = self.constant + own + sum(parts) + self.log_share * evidence.log_share
        return logistic(np.clip(total, -MOST_ODDS, MOST_ODDS))


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
    answers: Mapping[int, AnswerChances] = field(default_factory=dict)  # by the gap of the query

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
    found: list[dict[str, Any]],
    relations: Ids,
    prior: float | None,
) -> dict[str, Any]:
    """Add the probability to triples that have a score; return what it follows from.

    None where it is not known.
    """
    stated: dict[str, Any] = {"prior": None, "fitted_on_queries": None}
    if calibration is None:
        if prior is not None:
            what = "there are no validation triples to fit probabilities on"
            raise UserError(f"{flag('prior')} {prior}: {what}")
        chances: list[float | None] = [None] * len(found)
    else:
        scores = np.array([one["score"] for one in found])
        chances = calibration.probabilities(scores, relations, prior).tolist()
        stated["prior"] = calibration.prior if prior is None else prior
    _add(found, chances)
    return stated


def add_chances(
    calibration: Calibration | None,
    answers: list[dict[str, Any]],
    evidence: Evidence,
    gap: int,
    prior: float | None,
) -> dict[str, Any]:
    """Add the chance to be right to the best answers of a query; with a prior as to any triples."""
    fitted = None if calibration is None else calibration.answers.get(gap)
    if calibration is None or fitted is None or prior is not None:
        return add_probabilities(calibration, answers, evidence.relation, prior)
    odds = calibration.log_odds(evidence.score, evidence.relation)
    _add(answers, fitted.probabilities(odds, evidence).tolist())
    return {"prior": None, "fitted_on_queries": fitted.queries}


def _add(found: list[dict[str, Any]], chances: list[float | None]) -> None:
    for one, chance in zip(found, chances, strict=True):
        one["probability"] = chance


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
        "answers": {gap: vars(chances) for gap, chances in fitted.answers.items()},
    }


def from_values(values: Any, relations: int) -> Calibration:  # noqa: ANN401
    """Return the calibration that some JSON holds; any wrong value raises an error.

    An AttributeError, KeyError, TypeError or ValueError: the caller knows the name of the file.
    """
    by_relation = {r: _line(line) for r, line in _by_number(values["by_relation"], relations)}
    before, after = (np.array(_numbers(part)) for part in values["curve"])
    (prior,), everywhere = _numbers([values["prior"]]), _line(values["everywhere"])
    of = values["triples"], values["negatives"]
    gaps = _by_number(values["answers"], 3)
    answers = {gap: _chances(some, relations) for gap, some in gaps}
    found = Calibration(everywhere, by_relation, (before, after), prior, *of, answers)
    usual = (
        len(before) == len(after)
        and (np.diff(before) > 0).all()
        and (np.diff(after) >= 0).all()
        and 0 < found.prior < 1
        and _is_count(found.triples)
        and isinstance(found.negatives, str)
    )
    if not usual:
        raise ValueError
    found.negatives.encode()  # lone surrogates, which JSON may hold, cannot be shown
    return found


def _by_number(values: Any, end: int) -> list[tuple[int, Any]]:  # noqa: ANN401
    """Return the items of a mapping whose keys are the numbers below ``end``, as text."""
    if not all(re.fullmatch(r"0|[1-9]\d{0,9}", key) and int(key) < end for key in values):
        raise ValueError
    return [(int(key), value) for key, value in values.items()]


def _chances(values: Any, relations: int) -> AnswerChances:  # noqa: ANN401
    names = ("constant", "odds", "log_rank", "log_share")
    constant, odds, log_rank, log_share = _numbers([values[name] for name in names])
    own = _by_number(values["by_relation"], relations)
    if odds < 0 or log_rank > 0 or log_share < 0 or not _is_count(values["queries"]):
        raise ValueError
    by_relation = {relation: _numbers([number])[0] for relation, number in own}
    return AnswerChances(constant, odds, log_rank, log_share, by_relation, values["queries"])


def _is_count(value: Any) -> bool:  # noqa: ANN401
    return type(value) is int and value > 0


def _line(value: Any) -> Sigmoid:  # noqa: ANN401
    slope, offset = _numbers(value)
    if slope < 0:
        raise ValueError
    return Sigmoid(slope, offset)


def _numbers(values: Any) -> list[float]:  # noqa: ANN401
    if not all(type(x) in (int, float) and abs(x) < TOO_LARGE for x in values):
        raise ValueError
    return [float(x) for x in values]
