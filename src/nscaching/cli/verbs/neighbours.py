"""The verb ``neighbours``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from nscaching.cli.tables import print_json, print_table
from nscaching.cli.verbs._base import Device, Json, RunPath, Trust
from nscaching.cli.verbs.predict import numbered

__all__ = ["Neighbours"]


@dataclass(frozen=True)
class Neighbours:
    """List the entities whose vectors are nearest to that of an entity.

    nscaching neighbours runs/x Portugal --top 5
    """

    path: RunPath
    name: Annotated[Positional[str], arg(metavar="NAME", help="An entity, by name or label.")]
    top: int = 10
    """How many."""
    by: Literal["cosine", "distance"] = "cosine"
    """What nearness is: the angle between the vectors, or their Euclidean distance."""
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Find the nearest entities, and print them."""
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        answer = run.neighbours(self.name, self.top, self.by)
        if self.json:
            print_json(answer)
            return
        rows = [[numbered(near), f"{near[self.by]:.4f}"] for near in answer["neighbours"]]
        print_table([f"nearest to {answer['label']}", self.by], rows)
