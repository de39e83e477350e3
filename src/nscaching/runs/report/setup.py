"""What went in: the data, the settings, the command that repeats the run, versions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from nscaching import __version__
from nscaching.runs.card import command
from nscaching.config import TrainConfig
from nscaching.errors import as_flag
from nscaching.data.graph import MAPPING_CLASSES, SPLITS
from nscaching.runs.report.markup import fold, number, section, table, text

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["data", "settings"]

MOST_NOTES = 12
COMMAND = 20_000
"""Characters of a command that are shown."""


def data(run: Run) -> str:
    """Return the statistics of the graph."""
    graph = run.graph
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=len(graph.entities))
    facts = {
        "entities": number(len(graph.entities)),
        "relations": number(len(graph.relations)),
        **{f"{split} triples": number(len(graph.split(split))) for split in SPLITS},
        "median of an entity’s triples": number(float(np.median(degree))),
        "most triples of one": number(int(degree.max(initial=0))),
    }
    classes = np.array(graph.mapping_classes)
    triples = np.bincount(graph.train[:, 1], minlength=len(classes))
    rows = [
        [kind, number(int(here.sum())), number(int(triples[here].sum()))]
        for kind in MAPPING_CLASSES
        if (here := classes == kind).any()
    ]
    notes = [f"<li>{text(note, 300)}</li>" for note in graph.notes[:MOST_NOTES]]
    said = f'<ul class="notes">{"".join(notes)}</ul>\n' if notes else ""
    kinds = table(["relations of class", "relations", "training triples"], rows, "narrow")
    where = f"Loaded from {text(graph.source.data, 200)}." if graph.source.data else ""
    return section("Data", where, f"{_facts(facts)}{said}{kinds}")


def settings(run: Run) -> str:
    """Return the settings that are not the defaults, then the others; command and versions."""
    changed, usual = [], []
    for field in dataclasses.fields(TrainConfig):
        value = getattr(run.config, field.name)
        row = [f"<code>{as_flag(field.name)}</code>", _value(value), _value(field.default)]
        if value != field.default:
            changed.append(row)
        else:
            usual.append(row[:2])
    headings = ["setting", "value", "default"]
    parts = [
        table(headings, changed, "narrow") if changed else "<p>All settings are the defaults.</p>",
        fold(f"{len(usual)} settings at their defaults", table(headings[:2], usual, "narrow")),
        "<h3>The same again</h3>\n",
        f"<pre><code>{text(command(run), COMMAND)}</code></pre>\n",
        _facts({key: text(value, 60) for key, value in _versions(run).items()}),
    ]
    return section("Settings", "", "".join(parts))


def _versions(run: Run) -> dict[str, object]:
    """Return what is recorded of the machine and the programs; what is missing is of now."""
    here = {"nscaching": __version__, "torch": torch.__version__}
    record = here | {"data_fingerprint": run.graph.fingerprint} | run.record
    own = ("format", "replaces")  # of the folder, and nobody's concern
    return {key.replace("_", " "): value for key, value in record.items() if key not in own}


def _facts(facts: dict[str, str]) -> str:
    pairs = "".join(f"<div><dt>{text(key)}</dt><dd>{v}</dd></div>\n" for key, v in facts.items())
    return f'<dl class="facts">\n{pairs}</dl>\n'


def _value(value: object) -> str:
    if value is None or value == "":
        return "–"
    return text(value if not isinstance(value, bool) else str(value).lower(), 200)
