"""The verb that draws the figures of the paper."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from nscaching.cli.tables import note, print_json, say
from nscaching.cli.verbs._base import Json, RunPaths, Trust
from nscaching.paper.figures import KINDS, Kind


@dataclass(frozen=True)
class Figures:
    """Draw a figure of the paper from run folders, as PNG and SVG, with its data as CSV.

    nscaching figures convergence runs/a runs/b --out figures/
    nscaching figures cache runs/a --head Portugal --relation borders
    """

    kind: Annotated[Positional[Kind], arg(metavar="KIND", help=f"{', '.join(KINDS)}.")]
    paths: RunPaths
    out: str = "figures/"
    """Folder to write to (it exists, or ends in "/"), or how the names of the files begin."""
    overwrite: bool = False
    """Replace the files if they exist."""
    head: str = ""
    """For cache: the head entity of (head, relation, ?), by name or label."""
    relation: str = ""
    """For cache: the relation."""
    tail: str = ""
    """For cache: the tail entity of (?, relation, tail), instead of a head."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        from nscaching.cli.progress import when_slow
        from nscaching.paper.figures import draw

        with when_slow(f"drawing {self.kind}") as progress:
            drawn = draw(
                self.kind, self.paths, self.out, self.overwrite, progress,
                head=self.head or None, relation=self.relation or None, tail=self.tail or None,
                trust=self.trust,
            )  # fmt: skip
        for text in drawn.notes:
            note(f"note: {text}")
        files = [str(path) for path in drawn.files]
        if self.json:
            print_json({"kind": self.kind, "files": files, "notes": drawn.notes})
        else:
            say(*files)
