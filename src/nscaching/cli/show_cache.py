"""What a cache holds, as a table or JSON."""

from __future__ import annotations

from typing import Any

from nscaching.cli.tables import print_json, print_table, say
from nscaching.data.readers.prefixes import is_short_form
from nscaching.runs.escaping import shorten

__all__ = ["cache"]

LONGEST = 80
"""Characters of a name that are shown; JSON has all of it."""


def cache(found: dict[str, Any], as_json: bool) -> None:
    """Show one epoch entity by entity, several with one line each."""
    if as_json:
        print_json(found)
        return
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
