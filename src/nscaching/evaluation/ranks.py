"""Ranks of true answers, and the metrics of the ranks. Needs NumPy only."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nscaching.errors import unknown

Ties = Literal["realistic", "optimistic", "pessimistic"]
Floats = npt.NDArray[np.float64]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True)
class Ranks:
    """Ranks of the true answers [n] from 1, with equal scores behind and before them."""

    optimistic: npt.NDArray[np.int64]
    pessimistic: npt.NDArray[np.int64]

    def resolve(self, ties: Ties) -> Floats:
        """Return one rank of each answer; realistic is the mean of the two."""
        low, high = self.optimistic.astype(np.float64), self.pessimistic.astype(np.float64)
        found = {"realistic": (low + high) / 2, "optimistic": low, "pessimistic": high}
        if ties not in found:
            raise unknown("way to rank ties", ties, found)
        return found[ties]


def metrics(ranks: Floats) -> dict[str, float]:
    """Return MRR, MR and Hit@k of some ranks; Hit@k counts rank ≤ k."""
    return {name: float(np.mean(values)) for name, values in figures(ranks).items()}


def figures(ranks: Floats) -> dict[str, Floats]:
    """Return for each rank [n] what the metrics are the means of."""
    hits = {f"hits@{k}": (ranks <= k).astype(np.float64) for k in (1, 3, 10)}
    return {"mrr": 1 / ranks, "mr": ranks, **hits}
