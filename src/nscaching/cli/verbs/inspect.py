"""The verb ``inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import print_json, print_table, say
from nscaching.cli.verbs._base import Device, Json, RunPath, Trust
from nscaching.data.readers.prefixes import is_short_form
from nscaching.runs.escaping import shorten

__all__ = ["Inspect"]

LONGEST = 80
"""Characters of a name that are shown; JSON has all of them."""


@dataclass(frozen=True)
class Inspect:
    """Show the cached negatives of (head, relation, ?) or of (?, relation, tail), by name.

    nscaching inspect runs/x --head Portugal --relation borders --sample 5
    """

    path: RunPath
    head: str = ""
    """The head entity of (head, relation, ?), by name or label."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity of (?, relation, tail), instead of a head."""
    epoch: int | None = None
    """An epoch that --snapshots kept in training, or the last; None: the last, or all of them
    with --sample or --top."""
    sample: int | None = None
    """Show so many entities of each epoch, drawn by seed; None: all."""
    top: int | None = None
    """Show so many entities of each epoch, those that the run's model scores best; None: all."""
    seed: int = 0
    """Seed of --sample."""
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Read the cache, and print its entities."""
        from nscaching.runs.run import Run

        found = Run.load(self.path, self.device, self.trust).inspect(
            self.head or None,
            self.relation or None,
            self.tail or None,
            epoch=self.epoch,
            sample=self.sample,
            top=self.top,
            seed=self.seed,
        )
        if self.json:
            print_json(found)
        else:
            _print_cache(found)


def _print_cache(found: dict[str, Any]) -> None:
    """Print a line for each entity of one epoch, or a line for each of several epochs."""
    asked = ", ".join(_short(found[part] or "?") for part in ("head", "relation", "tail"))
    side = "tails" if found["tail"] is None else "heads"
    of_relation = f"{side} of {_short(found['relation'])} in training"
    epochs = found["epochs"]
    if len(epochs) == 1:
        (only,) = epochs
        rows = [[_named(e), f"{e['score']:.3f}", e["known"]] for e in only["entities"]]
        print_table([f"({asked}) at epoch {only['epoch']}", "score", "known"], rows)
        say(
            f"{only['distinct']} entities in {only['slots']} slots; "
            f"{only['known']} of them make known triples, {only['of_relation']} are {of_relation}"
        )
    else:
        rows = [
            [
                str(e["epoch"]),
                f"{e['known']}/{e['distinct']}",
                f"{e['of_relation']}/{e['distinct']}",
                ", ".join(map(_marked, e["entities"])),
            ]
            for e in epochs
        ]
        print_table(["epoch", "known", side, f"cache of ({asked})"], rows, words=[3])
        say("known: how many of all cached entities make known triples; here * marks them")
        say(f"{side}: how many of them are {of_relation}")
    others = sorted(set(found["recorded"]) - {e["epoch"] for e in epochs})
    if others:
        say(f"other recorded epochs: {', '.join(map(str, others))}; --sample 5 shows all together")


def _short(name: str) -> str:
    return shorten(name, LONGEST)


def _named(entity: dict[str, Any]) -> str:
    name, label = entity["name"], entity["label"]
    plain = label == name or is_short_form(label, name)
    return _short(label) if plain else f"{_short(label)} ({_short(name)})"


def _marked(entity: dict[str, Any]) -> str:
    return f"{_short(entity['label'])}{'*' if entity['known'] else ''}"
