"""The verb ``neighbours``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from nscaching.cli.tables import print_table
from nscaching.cli.verbs._base import AskRun
from nscaching.cli.verbs.predict import numbered

if TYPE_CHECKING:
    from nscaching.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Neighbours(AskRun):
    """List the entities whose vectors are nearest to the vector of an entity.

    nscaching neighbours runs/x Portugal --top 5
    """

    name: Annotated[Positional[str], arg(metavar="NAME", help="An entity, by name or label.")]
    top: int = 10
    """How many."""
    by: Literal["cosine", "distance"] = "cosine"
    """What nearness is: the angle between the vectors, or their Euclidean distance."""

    def ask(self, run: Run) -> dict[str, Any]:
        """Find the nearest entities."""
        return run.neighbours(self.name, self.top, self.by)

    def show(self, run: Run, result: dict[str, Any]) -> None:
        """Print the nearest entities."""
        rows = [[numbered(near), f"{near[self.by]:.4f}"] for near in result["neighbours"]]
        print_table([f"nearest to {result['label']}", self.by], rows)
