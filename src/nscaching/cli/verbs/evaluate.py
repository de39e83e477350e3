"""The verb ``evaluate``."""

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.tables import HEADINGS, cells, print_table, say
from nscaching.cli.verbs._base import AskRun, Run
from nscaching.errors import UserError

MOST = 12
"""The number of relations or classes that a table shows."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(AskRun):
    """Rank the triples of a split: MRR, MR, Hit@1/3/10, by side, mapping class and relation.

    nscaching evaluate runs/x --split test --json
    """

    task: Literal["links", "relations"] = "links"
    """What to rank: the head and the tail among all entities, or the relation of (h, ?, t)."""
    split: Literal["train", "valid", "test"] = "test"
    """Which triples to rank."""
    raw: bool = False
    """Let other known answers count too."""
    ties: Literal["realistic", "optimistic", "pessimistic"] = "realistic"
    """How equal scores rank."""
    memory_mb: int = 512
    """Memory for the scores of one chunk of queries."""

    def ask(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow

        if self.memory_mb < 1:
            raise UserError(f"--memory-mb must be at least 1, not {self.memory_mb}")
        options = {"filtered": not self.raw, "ties": self.ties, "budget": self.memory_mb << 20}
        with when_slow(f"ranking {self.split}") as bar:
            result = run.evaluate(self.split, self.task, progress=bar, **options)
        return {"run": str(run.path), **result}

    def show(self, run: Run, result: dict[str, Any]) -> None:
        sides = {f"{side} side": values for side, values in result.get("by_side", {}).items()}
        relations, more = largest_parts(result["by_relation"], run.graph.labels)
        parts = [("all", result), *sides.items(), *result.get("by_class", {}).items(), *relations]
        rows = [[name, *cells(values, "triples", *HEADINGS)] for name, values in parts]
        mode = "filtered" if result["filtered"] else "raw"
        what = " relations," if self.task == "relations" else ""
        title = f"{run.name}:{what} {result['split']}, {mode}, {result['ties']} ties"
        print_table(["", "triples", *HEADINGS.values()], rows, title)
        say_more(more, "relations")


def largest_parts(
    parts: dict[str, Any], labels: dict[str, str]
) -> tuple[list[tuple[str, Any]], int]:
    """Return the parts with most triples by their labels, and the number of all others."""
    ordered = sorted(parts.items(), key=lambda item: -item[1]["triples"])[:MOST]
    return [(labels.get(name, name), part) for name, part in ordered], len(parts) - len(ordered)


def say_more(more: int, what: str) -> None:
    """Print how many parts a table does not show."""
    if more:
        say(f"… and {more} more {what}; --json has them all")
