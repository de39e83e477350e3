"""The exported vectors, and the interface of a format."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
        for names, rows in (
            (self.entities, self.entity),
            (self.labels, self.entity),
            (self.relations, self.relation),
        ):
            if rows.ndim != 2 or rows.dtype != np.float32 or len(names) != len(rows):
                raise ValueError("names and vectors do not fit")


class Format(ABC):
    """A way to write vectors."""

    def check(self) -> None:  # noqa: B027  (most formats need nothing)
        """Raise a UserError if a package is missing."""

    def files(self, path: Path) -> tuple[Path, ...]:
        """Return the files of an export to a path, the path itself first."""
        return (path,)

    @abstractmethod
    def write(self, vectors: Vectors, files: Sequence[Path], progress: Progress) -> None:
        """Write the files."""

    @abstractmethod
    def read(self, path: Path) -> Vectors:
        """Read the files; a ValueError, KeyError or OSError says what is wrong."""
