"""The verbs ``reproduce`` and ``figures``: the tables and the figures of the paper."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from nscaching.cli.tables import note, print_json, say
from nscaching.cli.verbs._base import Json, RunPaths, Trust
from nscaching.errors import UserError, user_path
from nscaching.paper.figures import KINDS, Kind
from nscaching.paper.reproduce.selection import Selection


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a table of the paper: train what is missing, set our values beside the paper's.

    nscaching reproduce link-prediction --models TransE --data wn18rr --seeds 1
    """

    task: Annotated[
        Positional[Literal["link-prediction", "triplet-classification"]],
        arg(help="Which of the paper's tables."),
    ]
    selection: OmitArgPrefixes[Selection] = field(default_factory=Selection)
    out: str = "results"
    """Folder of the results, which grow: TASK.jsonl, TASK.md, pretrained starts, and checkpoints of
    stopped trainings."""
    processes: int = 0
    """Trainings at the same time, a process each; 0: one for each visible GPU, or one on a CPU."""
    time_limit: float = 0.0
    """Stop after so many seconds; the same command resumes there. 0: none."""
    table_only: bool = False
    """Train nothing; write the table of the results that there are."""
    json: Json = False

    def run(self) -> None:
        from nscaching.cli import show_reproduce

        if not 0 <= self.time_limit < float("inf"):
            raise UserError(f"--time-limit must be zero or a positive number: {self.time_limit}")
        outcome = show_reproduce.reproduce(
            self.task,
            self.selection,
            user_path(self.out),
            self.time_limit,
            self.table_only,
            self.processes,
        )
        show_reproduce.outcome(outcome, self.json)
        if outcome.failed:
            raise UserError(f"{len(outcome.failed)} trainings failed: {outcome.failed[0]}")


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
