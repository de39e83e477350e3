"""The verb ``predict``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.tables import print_json, print_table, say
from nscaching.cli.verbs._base import Device, Json, RunPath, Trust
from nscaching.data.readers.prefixes import is_short_form

__all__ = ["Predict", "numbered", "print_answers"]


@dataclass(frozen=True)
class Predict:
    """Answer a triple with one gap, or judge a whole one; names or labels.

    nscaching predict runs/x --head Portugal --relation borders --top 5
    """

    path: RunPath
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
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Predict, and print the answers or the judgement."""
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        answer = run.predict(
            self.head or None, self.relation or None, self.tail or None, self.top, self.known
        )
        if self.json:
            print_json(answer)
        elif "answers" in answer:
            print_answers(answer)
        else:
            _print_judgement(answer)


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
