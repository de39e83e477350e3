"""Verbs for presets and for the paper's tables."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from nscaching.cli.verbs._base import Json
from nscaching.errors import UserError, user_path
from nscaching.paper.reproduce.selection import Selection


@dataclass(frozen=True)
class Presets:
    """List the presets: settings for a data set and a scoring function, for train --preset.

    nscaching presets
    """

    json: Json = False

    def run(self) -> None:
        """Print names and settings."""
        from nscaching.cli import show_reproduce

        show_reproduce.presets(self.json)


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
    time_limit: float = 0.0
    """Stop after so many seconds; the same command resumes there. 0: none."""
    table_only: bool = False
    """Train nothing; write the table of the results that there are."""
    json: Json = False

    def run(self) -> None:
        """Train, showing progress, and print the rows."""
        from nscaching.cli import show_reproduce

        if not 0 <= self.time_limit < float("inf"):
            raise UserError(f"--time-limit must be zero or a positive number: {self.time_limit}")
        outcome = show_reproduce.reproduce(
            self.task, self.selection, user_path(self.out), self.time_limit, self.table_only
        )
        show_reproduce.outcome(outcome, self.json)
        if outcome.failed:
            raise UserError(f"{len(outcome.failed)} trainings failed: {outcome.failed[0]}")
