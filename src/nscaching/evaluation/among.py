"""Ranks among few candidates: relations, or classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Ids
from nscaching.errors import Diverged
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import Ranks
from nscaching.kernels import Kernels, Known
from nscaching.models import DIVERGED

__all__ = ["Progress", "ids", "known_runs", "rank_among"]

Progress = Callable[[int, int], None]


def ids(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return ids as a tensor that can index."""
    return torch.from_numpy(np.ascontiguousarray(array)).long().to(device)


def known_runs(index: AnswerIndex, first: Ids, second: Ids, device: torch.device) -> Known:
    """Return the known answers of queries that consist of two ids."""
    start, end = (ids(run, device) for run in index.runs(first, second))
    return Known(start, end, torch.from_numpy(index.answers).to(device))


@torch.no_grad()
def rank_among(
    score: Callable[[slice], Tensor],
    answer: Tensor,
    known: Known | None,
    chunk: int,
    progress: Progress | None = None,
) -> Ranks:
    """Rank the answer [n] of each query among the candidates.

    ``score`` gives the scores [some, candidates] of some queries. Known answers do not count.
    """

    def count(some: slice) -> Tensor:
        others = known and Known(known.start[some], known.end[some], known.answers)
        return Kernels().count(score(some), answer[some], others)

    parts = []
    for some, found in Chunks(min(chunk, max(1, len(answer)))).over(len(answer), count):
        parts.append(found)
        if progress is not None:
            progress(some.stop, len(answer))
    above, level, wrong = torch.cat(parts, dim=1).cpu().numpy()
    if wrong.any():
        raise Diverged(DIVERGED)
    return Ranks(above + 1, above + level + 1)
