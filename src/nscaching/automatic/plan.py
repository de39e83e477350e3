"""Which candidate trains next, and for how long: successive halving, then the best to its end.

1. Each model trains for one share of the time, a 20th of it.
2. The better half trains on until it has had two shares, the better half of that four.
3. The best trains until it no longer gains, then the two after it.
4. While time is left: variants of the best, each to its end; then all others.

A step is a function of what was trained so far, so that an interrupted search goes on alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nscaching.automatic.candidates import BASES, Candidate, Changes, neighbours
from nscaching.config import TrainConfig

SHARES = 20
EPOCHS = 3  # the fewest in a share: after the first epoch models do not compare
OF_MODELS = 0.5  # the most of the time for the first shares of all models
CONTENDERS = 3

MakeConfig = Callable[[str, Changes], TrainConfig]  # of a base and changes


@dataclass(frozen=True)
class Pace:
    """Seconds that parts of a training take here, measured with the first candidate."""

    setup: float  # before the first step
    epoch: float
    valid: float  # one ranking of the validation triples

    @property
    def look(self) -> float:
        """The least that a candidate must have to be judged at all."""
        return self.epoch + self.valid


class Step(NamedTuple):
    """Train a candidate, new or begun, until it has had some seconds, or to its end."""

    candidate: Candidate | None
    seconds: float
    base: str = ""  # of a new candidate, like the others below
    changes: Changes = {}  # noqa: RUF012  (never written to)
    parent: int = 0


def share(seconds: float, pace: Pace) -> float:
    """Return the seconds of one share: enough for some epochs and one validation."""
    return max(seconds / SHARES, EPOCHS * pace.epoch + pace.valid)


def models(seconds: float, pace: Pace) -> list[str]:
    """Return the models that there is time for."""
    each = pace.setup + share(seconds, pace)
    return list(BASES)[: max(1, int(OF_MODELS * seconds / each))]


def ranked(tried: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with a validation, the best first."""
    return sorted((one for one in tried if one.mrr >= 0), key=lambda one: -one.mrr)


def next_step(
    tried: Sequence[Candidate], names: Sequence[str], seconds: float, make: MakeConfig
) -> Step | None:
    """Return what to train next; ``seconds`` is one share, ``names`` the models to try."""
    begun = {one.base for one in tried if not one.parent}
    for base in names:
        if base not in begun:
            return Step(None, seconds, base)
    for one in tried:
        if one.is_open and not one.parent and one.seconds < seconds:
            return Step(one, seconds)
    best = ranked(tried)
    if not best:
        return None  # all have failed
    keep, until = len(names), seconds
    while keep > 2:
        keep, until = math.ceil(keep / 2), 2 * until
        for one in [one for one in best if not one.parent][:keep]:
            if one.is_open and one.seconds < until:
                return Step(one, until)
    variants = [one for one in tried if one.parent]
    for one in (*best[:CONTENDERS], *variants):
        if one.is_open:
            return Step(one, math.inf)
    for changes in untried(tried, best[0], make):
        return Step(None, math.inf, best[0].base, changes, best[0].number)
    return next((Step(one, math.inf) for one in best if one.is_open), None)


def untried(tried: Sequence[Candidate], parent: Candidate, make: MakeConfig) -> list[Changes]:
    """Return the changes to a candidate's base that make new settings."""
    known = [_compared(one.config) for one in tried]
    changes = [{**parent.changes, **change} for change in neighbours(parent.config)]
    return [change for change in changes if _compared(make(parent.base, change)) not in known]


def _compared(config: TrainConfig) -> TrainConfig:
    """Return the settings without those that say how long to train."""
    return config.changed(epochs=1, patience=0, validate_every=1)
