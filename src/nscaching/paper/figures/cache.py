"""What the cache of one query held at each epoch that was kept: a table of names."""

from __future__ import annotations

from typing import Any

from nscaching.errors import UserError
from nscaching.paper.figures._logs import Log, shown
from nscaching.paper.figures._pages import Page, Row, Table, evenly

__all__ = ["pages"]

SHOWN = 5
"""Entities of an epoch in the image, drawn by seed; the CSV file has all."""
MOST_EPOCHS = 25
"""Rows of the image."""


def pages(
    logs: list[Log],
    notes: list[str],
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
) -> list[Page]:
    """Return a page for each run: a row for each epoch, those of a fitting kind stand out."""
    inspected: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def lacks(log: Log) -> str:
        try:
            run = log.load()
            some, everything = (
                run.inspect(head, relation, tail, sample=n) for n in (SHOWN, run.config.n1)
            )
        except UserError as error:
            if len(logs) == 1:
                raise
            return str(error)
        inspected[id(log)] = some, everything
        return ""

    made, logs = [], shown(logs, lacks, notes)
    for log in logs:
        found, everything = inspected[id(log)]
        query = ", ".join(found[part] or "?" for part in ("head", "relation", "tail"))
        title = f"cache of ({query}): {log.model} with {log.sampler} on {log.data}"
        table = _table(log, found, everything)
        suffix = log.name if len(logs) > 1 else ""
        made.append(Page([], 1, title, suffix, table=table))
        if len(found["epochs"]) > MOST_EPOCHS:
            epochs = len(found["epochs"])
            notes.append(f"{log.where}: {MOST_EPOCHS} of {epochs} recorded epochs are shown")
        if len(found["recorded"]) == 1:
            notes.append(
                f"{log.where}: one epoch is recorded; nscaching train --snapshots keeps more"
            )
    return made


def _table(log: Log, found: dict[str, Any], everything: dict[str, Any]) -> Table:
    side = "tail" if found["tail"] is None else "head"
    most = max(len(epoch["entities"]) for epoch in found["epochs"])
    cells, marked = [], set()
    for i, epoch in enumerate(evenly(found["epochs"], MOST_EPOCHS)):
        counts = [str(epoch["epoch"]), f"{epoch['of_relation']} of {epoch['distinct']}"]
        entities = epoch["entities"]
        cells.append([*counts, *(e["label"] + "*" * bool(e["known"]) for e in entities)])
        marked |= {(i, j) for j, e in enumerate(entities, len(counts)) if e["of_relation"]}
    return Table(
        headings=["epoch", f"{side}s", f"{most} of the entities", *[""] * (most - 1)],
        cells=cells,
        marked=marked,
        narrow=2,
        note=f"bold, and counted as {side}s: a {side} of {found['relation']} in training; "
        "*: makes a known triple",
        rows=_rows(log, found, everything),
    )


def _rows(log: Log, found: dict[str, Any], everything: dict[str, Any]) -> list[Row]:
    query = {part: found[part] or "" for part in ("head", "relation", "tail")}
    rows = []
    for some, epoch in zip(found["epochs"], everything["epochs"], strict=True):
        names = {entity["name"] for entity in some["entities"]}
        for entity in epoch["entities"]:
            about = {**log.about(), **query, "epoch": epoch["epoch"]}
            rows.append({**about, **entity, "shown": entity["name"] in names})
    return rows
