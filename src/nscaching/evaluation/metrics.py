"""The metrics of ranks."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


def metrics(ranks: Floats) -> dict[str, float]:
    """Return MRR, MR and Hit@k of some ranks; Hit@k counts rank ≤ k."""
    found = {"mrr": float(np.mean(1 / ranks)), "mr": float(np.mean(ranks))}
    return found | {f"hits@{k}": float(np.mean(ranks <= k)) for k in (1, 3, 10)}
