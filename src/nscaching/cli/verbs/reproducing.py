"""Verbs for presets and for the paper's tables."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from nscaching.cli.tables import print_json, print_table, say
from nscaching.cli.verbs._base import Json
from nscaching.errors import UserError, as_flag, user_path
from nscaching.paper.reproduce.selection import Selection


@dataclass(frozen=True)
class Presets:
    """List the presets: settings for a data set and a scoring function, for train --preset.

    nscaching presets
    """

    json: Json = False

    def run(self) -> None:
        from nscaching.config import TrainConfig
        from nscaching.paper.presets import VARIANTS, load, names

        defaults = TrainConfig().flat()
        rows: dict[str, dict[str, Any]] = {}
        for name in names():
            for variant in VARIANTS:
                data, config = load(name, variant)
                settings = config.flat()
                rows.setdefault(name, {"data": data, "model": settings.pop("model")})
                rows[name][variant] = {k: v for k, v in settings.items() if v != defaults[k]}
        if self.json:
            print_json(rows)
            return
        flags = [
            [" ".join(f"{as_flag(k)} {v}" for k, v in row[variant].items()) for variant in VARIANTS]
            for row in rows.values()
        ]
        print_table(["name", *VARIANTS], [[n, *f] for n, f in zip(rows, flags, strict=True)])
        say(
            "nscaching train --preset NAME takes the first column's settings, "
            "NAME:paper the second's."
        )


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
        from nscaching.cli import show_reproduce

        if not 0 <= self.time_limit < float("inf"):
            raise UserError(f"--time-limit must be zero or a positive number: {self.time_limit}")
        outcome = show_reproduce.reproduce(
            self.task, self.selection, user_path(self.out), self.time_limit, self.table_only
        )
        show_reproduce.outcome(outcome, self.json)
        if outcome.failed:
            raise UserError(f"{len(outcome.failed)} trainings failed: {outcome.failed[0]}")
