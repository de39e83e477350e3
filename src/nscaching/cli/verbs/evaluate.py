"""The verb ``evaluate``."""

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.tables import HEADINGS, metric_cells, print_table, say
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
        rows = [["all", f"{result['triples']:,}", *metric_cells(result)]]
        for side, values in result.get("by_side", {}).items():
            rows.append([f"{side} side", "", *metric_cells(values)])
        relations, more = largest_parts(result["by_relation"])
        labelled = [(run.graph.labels.get(name, name), values) for name, values in relations]
        for name, values in [*result.get("by_class", {}).items(), *labelled]:
            rows.append([name, f"{values['triples']:,}", *metric_cells(values)])
        mode = "filtered" if result["filtered"] else "raw"
        what = " relations," if self.task == "relations" else ""
        title = f"{run.name}:{what} {result['split']}, {mode}, {result['ties']} ties"
        print_table(["", "triples", *HEADINGS.values()], rows, title)
        say_more(more, "relations")


def largest_parts(parts: dict[str, Any]) -> tuple[list[tuple[str, Any]], int]:
    """Return the parts with most triples, and the number of all others."""
    ordered = sorted(parts.items(), key=lambda item: -item[1]["triples"])
    return ordered[:MOST], max(0, len(ordered) - MOST)


def say_more(more: int, what: str) -> None:
    """Print how many parts a table does not show."""
    if more:
        say(f"… and {more} more {what}; --json has them all")
