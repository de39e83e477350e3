"""What went into a run: the data, the settings, the command that repeats the run, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from markupsafe import Markup

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import MAPPING_CLASSES, SPLITS
from nscaching.errors import as_flag
from nscaching.runs.card import command
from nscaching.runs.report.markup import number

if TYPE_CHECKING:
    from nscaching.runs.run import Run

MOST_NOTES = 12


def data(run: Run) -> dict[str, Any]:
    """Return the statistics of the graph."""
    graph = run.graph
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=len(graph.entities))
    facts = {
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        **{f"{split} triples": len(graph.split(split)) for split in SPLITS},
        "median of an entity’s triples": float(np.median(degree)),
        "most triples of one": int(degree.max(initial=0)),
    }
    classes = np.array(graph.mapping_classes)
    triples = np.bincount(graph.train[:, 1], minlength=len(classes))
    rows = [
        (kind, number(int(here.sum())), number(int(triples[here].sum())))
        for kind in MAPPING_CLASSES
        if (here := classes == kind).any()
    ]
    shown = {key: number(value) for key, value in facts.items()}
    return {"facts": shown, "classes": rows, "notes": graph.notes[:MOST_NOTES]}


def settings(run: Run) -> dict[str, Any]:
    """Return the settings that differ from the defaults, the others, command and versions."""
    changed, usual = [], []
    defaults = TrainConfig().flat()
    for name, value in run.config.flat().items():
        row = Markup("<code>{}</code>").format(as_flag(name)), _shown(value)
        if value != defaults[name]:
            changed.append((*row, _shown(defaults[name])))
        else:
            usual.append(row)
    here = {"nscaching": __version__, "torch": torch.__version__}
    record = here | {"data_fingerprint": run.graph.fingerprint} | run.record
    versions = {
        key.replace("_", " "): value
        for key, value in record.items()
        if key not in ("format", "replaces")  # of the folder, not of the run
    }
    return {"changed": changed, "usual": usual, "command": command(run), "versions": versions}


def _shown(value: object) -> str:
    if value is None or value == "":
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
