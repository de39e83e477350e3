"""The verb ``explain``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import print_table, say
from nscaching.cli.verbs._base import AskTable, Run
from nscaching.cli.verbs.predict import asked
from nscaching.errors import counted
from nscaching.runs.escaping import shorten

SHORT = 60  # characters of a name in a table; JSON has all of them


@dataclass(frozen=True, kw_only=True)
class Explain(AskTable):
    """Show the training facts that speak for a triple: similar facts, paths, influences.

    nscaching explain runs/x --head Andorra --relation speaks --tail Catalan
    """

    head: str = ""
    """The head entity, by name or label; --head=NAME where it begins with a dash."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity."""
    top: int = 5
    """How many similar facts, paths and influences, at most."""

    def ask(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow

        with when_slow("counting paths") as bar:
            return run.explain(self.head, self.relation, self.tail, self.top, bar)

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        paths = [
            {"path": _steps(path)} | {k: path[k] for k in ("confidence", "support", "pairs")}
            for path in result["paths"]
        ]
        kinds = ("similar", result["similar"]), ("path", paths), ("rests on", result["facts"])
        return [{"kind": kind} | each for kind, some in kinds for each in some]

    def show(self, run: Run, result: dict[str, Any]) -> None:
        known = f"known, from {result['known']}" if result["known"] else "not in the data"
        say(f"{asked(result)}: score {result['score']:.3f}; {known}", "")
        headings, words = ["nearness", "influence"], f"similar facts of {result['relation']}"
        rows = [
            [_fact(fact), f"{fact['nearness']:.2f}", f"{fact['influence']:.3g}"]
            for fact in result["similar"]
        ]
        _print_or_say([words, *headings], rows, "no other fact of this relation in training")
        rows = []
        for path in result["paths"]:
            share = f"{path['support']:,} of {path['pairs']:,}"
            facts = ", ".join(map(_fact, path["facts"]))
            rows.append([_steps(path), f"{path['confidence']:.2f}", share, facts])
        headings = ["paths from head to tail", "holds", "pairs", "such as"]
        none = "no path of up to three steps that other facts of the relation have too"
        _print_or_say(headings, rows, none, words=[0, 3])
        rows = [[_fact(fact), f"{fact['influence']:.3g}"] for fact in result["facts"]]
        _print_or_say(["the score rests on", "influence"], rows, "no training fact of its entities")
        compared = f"best of {counted(result['facts_compared'], 'fact')}"
        say(f"influence: what the score would lose without the fact, to first order; {compared}")
        say("influences have no unit: compare them with each other, not with the score")


def _print_or_say(
    headings: list[str], rows: list[list[str]], none: str, words: list[int] | None = None
) -> None:
    if rows:
        print_table(headings, rows, words=words or [0])
    else:
        say(none)
    say("")


def _fact(fact: dict[str, Any]) -> str:
    return asked(fact, SHORT)


def _steps(path: dict[str, Any]) -> str:
    """Return the relations of a path, ⁻¹ marking a step against a relation's direction."""
    names = (shorten(s["relation"], SHORT) + "⁻¹" * s["inverse"] for s in path["steps"])
    return " → ".join(names)
