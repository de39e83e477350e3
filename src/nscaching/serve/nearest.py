"""The nearest vectors by cosine, from vectors that stay on the disk: a twin of ``neighbours``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Longs

Rows = npt.NDArray[Any]

BLOCK = 8 << 20  # bytes of rows that are read at once
SPARE = 32  # entities more than asked for whose cosine is computed again, in double precision


class Nearest:
    """Vectors [n, D] that are asked for their neighbours."""

    def __init__(self, vectors: Rows) -> None:
        self.vectors = vectors
        self.step = max(1, BLOCK // max(1, vectors[:1].nbytes))

    @cached_property
    def lengths(self) -> Rows:
        """The lengths [n] of the vectors; those of zeros count as tiny."""
        parts = [np.linalg.norm(self.vectors[some], axis=1) for some in self._blocks()]
        lengths: Rows = np.maximum(np.concatenate(parts), np.float32(1e-12))
        return lengths

    def of(self, entity: int, top: int) -> list[tuple[int, float]]:
        """Return the nearest entities with their cosines, equal ones by id."""
        own = self.vectors[entity]
        near = np.concatenate([self.vectors[some] @ own for some in self._blocks()]) / self.lengths
        near[entity] = -np.inf
        few = min(top + SPARE, len(near) - 1)
        if few <= 0:
            return []
        chosen: Longs = np.sort(np.argpartition(-near, few - 1)[:few])
        exact = _cosines(self.vectors[chosen], own)
        order = np.argsort(-exact, kind="stable")[:top]
        return [(int(chosen[i]), float(exact[i])) for i in order]

    def _blocks(self) -> list[slice]:
        return [slice(b, b + self.step) for b in range(0, len(self.vectors), self.step)]


def _cosines(rows: Rows, own: Rows) -> Rows:
    """Not a matrix product: that rounds a row by its place, and equal ones must stay equal."""
    rows, own = rows.astype(np.float64), own.astype(np.float64)
    lengths = np.maximum(np.sqrt((rows**2).sum(1)), 1e-12)
    cosines: Rows = (rows * own).sum(1) / lengths / max(float(np.sqrt((own**2).sum())), 1e-12)
    return cosines
