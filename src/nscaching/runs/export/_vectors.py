"""The exported vectors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)  # arrays have no truth value to compare by
class Vectors:
    """The vectors of a run with their names; row i belongs to name i."""

    entities: list[str]
    labels: list[str]
    """Readable names of the entities; an entity without one has its name."""
    entity: Floats  # [|E|, D]
    relations: list[str]
    relation: Floats  # [|R|, D′], where D′ may differ from D

    def __post_init__(self) -> None:
        for rows, *names in (
            (self.entity, self.entities, self.labels),
            (self.relation, self.relations),
        ):
            fits = all(len(some) == len(rows) for some in names)
            if rows.ndim != 2 or rows.dtype != np.float32 or not fits:
                raise ValueError("names and vectors do not fit")

    def __len__(self) -> int:
        return len(self.entities) + len(self.relations)
