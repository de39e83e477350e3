"""The verb ``predict``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nscaching.cli.tables import print_table, say
from nscaching.cli.verbs._base import AskRun
from nscaching.data.readers.prefixes import is_short_form

if TYPE_CHECKING:
    from nscaching.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Predict(AskRun):
    """Answer a triple with one gap, or judge a whole one; names or labels.

    nscaching predict runs/x --head Portugal --relation borders --top 5
    """

    head: str = ""
    """The head entity, by name or label; --head=NAME where it begins with a dash."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity; leave out what is asked for."""
    top: int = 10
    """How many answers."""
    known: Literal["hide", "mark"] = "hide"
    """Leave known facts out, or mark them."""

    def ask(self, run: Run) -> dict[str, Any]:
        """Predict what is left out, or judge the triple."""
        head, relation, tail = self.head or None, self.relation or None, self.tail or None
        return run.predict(head, relation, tail, self.top, self.known)

    def show(self, run: Run, result: dict[str, Any]) -> None:
        """Print the answers, or the judgement."""
        if "answers" in result:
            print_answers(result)
        else:
            _print_judgement(result)


def _asked(answer: dict[str, Any]) -> str:
    return ", ".join(answer[part] or "?" for part in ("head", "relation", "tail"))


def print_answers(answer: dict[str, Any]) -> None:
    """Print the answers to a triple with one gap."""
    rows = [[numbered(a), f"{a['score']:.3f}", a["known"]] for a in answer["answers"]]
    print_table([f"({_asked(answer)})", "score", "known"], rows)
    if answer["known_facts_left_out"]:
        say(f"{answer['known_facts_left_out']} known facts left out; --known mark shows them")


def _print_judgement(answer: dict[str, Any]) -> None:
    known = f"; known, from {answer['known']}" if answer["known"] else "; not in the data"
    score = f"score {answer['score']:.3f}"
    if answer["threshold"] is None:
        say(f"({_asked(answer)}): {score}{known}")
        return
    verdict = "plausible" if answer["plausible"] else "implausible"
    threshold = f"threshold of its relation {answer['threshold']:.3f}"
    say(f"({_asked(answer)}): {verdict}; {score}, {threshold}{known}")


def numbered(answer: dict[str, Any]) -> str:
    """Return the rank and the label of an entity, with its name where the label hides it."""
    name, label = answer["name"], answer["label"]
    more = "" if label == name or is_short_form(label, name) else f" ({name})"
    return f"{answer['rank']}. {label}{more}"
