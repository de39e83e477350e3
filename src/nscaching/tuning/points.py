"""The points of a search: which trials ended, and which point comes next."""

from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from nscaching.tuning.space import Space

RANDOM_FIRST = 10  # points before TPE has something to learn from
REDRAWS = 8


def ended(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that were not interrupted, in the order of their ends.

    Optuna learns from pruned trials and ignores failed ones. So a trial that diverged is stored
    as pruned, with its reason as an attribute, and FAIL means interrupted.
    """
    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(found, key=lambda trial: trial.datetime_complete or datetime.max)


class FreshPoints(TPESampler):
    """TPE that tries no point twice, nor at the same time.

    The random numbers depend on the seed and on the number of earlier trials alone. So an
    interrupted search continues with the points of an uninterrupted one, if its trials run one
    after the other.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(seed=seed)
        self.space, self.seed = space, seed
        # Points whose process was lost, perhaps by their fault. Another search may try them again.
        self.interrupted: list[dict[str, Any]] = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(self.space)  # all hyperparameters together

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a new point: from TPE, or a random one where TPE repeats itself."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        begun = [*ended(study), *(other for other in running if other.number != trial.number)]
        tried = [*(before.params for before in begun), *self.interrupted]
        seeds = np.random.SeedSequence([self.seed, len(tried)]).generate_state(REDRAWS).tolist()
        for draw, seed in enumerate(seeds):
            # First the most promising of 24 candidates, then any promising one.
            candidates = 1 if draw else 24
            tpe = TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST, n_ei_candidates=candidates)
            point = tpe.sample_relative(study, trial, search_space)
            if point and point not in tried:  # empty with few trials
                return point
        random = RandomSampler(seed=seeds[0])
        while True:  # the search ends before the space is used up, so a new point exists
            point = {
                name: random.sample_independent(study, trial, name, part)
                for name, part in search_space.items()
            }
            if point not in tried:
                return point
