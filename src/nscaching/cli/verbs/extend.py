"""The verb ``extend``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from nscaching.cli.tables import HEADINGS, cells, print_table, say
from nscaching.cli.verbs._base import AskRun, Run
from nscaching.errors import UserError, counted, user_path

NewFile = Annotated[
    Positional[Path], arg(metavar="FILE", help="New facts, in any format that train reads.")
]


@dataclass(frozen=True, kw_only=True)
class Extend(AskRun):
    """Add facts and entities to a run without a new training; write a new run folder.

    nscaching extend runs/x new.tsv --out runs/x2
    """

    file: NewFile
    out: str = ""
    """The new run folder; an existing one is never overwritten."""
    held_out: float = 0.2
    """Share of each new entity's facts that is kept from a first fit, for the figures; 0: none."""
    seed: int = 0
    """Seed of what is held out and of the fit."""

    def ask(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow
        from nscaching.runs.folder import RunFolder

        if not self.out:
            raise UserError("extend writes a new run folder: name it by --out")
        if user_path(self.out).exists():
            raise UserError(f"{self.out} exists already; choose another --out")
        RunFolder(self.out).check_free(overwrite=False)
        with when_slow("extending") as bar:
            extended = run.extend(self.file, self.held_out, self.seed, bar.stage)
        path = extended.save(self.out)
        found = extended.record["extended"]
        return {"run": str(path), **found, "test": extended.result("test")}

    def show(self, run: Run, result: dict[str, Any]) -> None:
        facts = counted(result["facts"], "fact")
        entities = counted(result["new_entities"], "new entity", "new entities")
        say(f"{result['run']}: {facts} and {entities} more than {result['from']}")
        if result["between_known"]:
            between = counted(result["between_known"], "fact")
            say(f"{between} between known entities: known from now on, no vector changes by them")
        if held_out := result.get("held_out"):
            rows = [
                [what, *cells(figures)]
                for what, figures in (
                    ("both", result),
                    ("the known entity asked for", result["known_entity"]),
                    ("the new entity asked for", result["new_entity"]),
                )
            ]
            say(f"ranks of {counted(held_out, 'held-out new fact')}, fitted without them:")
            print_table(["", *HEADINGS.values()], rows)
        elif result["new_entities"]:
            say("no figures: no new entity has two facts with known ones, or --held-out is 0")
        if after := result["test"]:
            before = run.result("test")
            was = f", before {before['mrr']:.4f}" if before else ""
            say(f"test triples of {result['from']}: MRR {after['mrr']:.4f}{was}")
