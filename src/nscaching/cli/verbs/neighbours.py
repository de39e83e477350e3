"""The verb ``neighbours``."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from nscaching.cli.tables import print_table
from nscaching.cli.verbs._base import AskRun, Run
from nscaching.cli.verbs.predict import named


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
        return run.neighbours(self.name, self.top, self.by)

    def show(self, run: Run, result: dict[str, Any]) -> None:
        near = result["neighbours"]
        rows = [[f"{each['rank']}. {named(each)}", f"{each[self.by]:.4f}"] for each in near]
        print_table([f"nearest to {result['label']}", self.by], rows)
