"""The cache of one query at each recorded epoch: a table of names."""

from typing import Any

from nscaching.errors import UserError
from nscaching.paper.figures._drawing import Page, Row, Table, evenly
from nscaching.paper.figures._logs import Log, shown
from nscaching.runs.run import Run

SHOWN = 5  # entities of an epoch in the image, drawn by seed; the CSV file has all
MOST_EPOCHS = 25  # rows of the image


def pages(
    logs: list[Log], notes: list[str], head: str | None, relation: str | None, tail: str | None
) -> list[Page]:
    """Return a page for each run, with a row for each epoch; fitting entities stand out."""
    inspected: dict[Log, list[dict[str, Any]]] = {}

    def lacks(log: Log) -> str:
        try:
            run = log.run or Run.load(log.where, trust=True)  # ``draw`` has asked for trust
            sizes = (SHOWN, run.config.cache.n1)
            inspected[log] = [run.inspect(head, relation, tail, sample=n) for n in sizes]
        except UserError as error:
            if len(logs) == 1:
                raise
            return str(error)
        return ""

    made = []
    for log in shown(logs, lacks, notes):
        some, every = inspected[log]
        query = ", ".join(some[part] or "?" for part in ("head", "relation", "tail"))
        table = _table(log, some, every)
        made.append(Page([], 1, f"cache of ({query}): {log.title}", log.name, table=table))
        if (epochs := len(some["epochs"])) > MOST_EPOCHS:
            notes.append(f"{log.where}: {MOST_EPOCHS} of {epochs} recorded epochs are shown")
        if len(some["recorded"]) == 1:
            cure = "nscaching train --snapshots keeps more"
            notes.append(f"{log.where}: one epoch is recorded; {cure}")
    return made


def _table(log: Log, some: dict[str, Any], every: dict[str, Any]) -> Table:
    side = "tail" if some["tail"] is None else "head"
    most = max(len(epoch["entities"]) for epoch in some["epochs"])
    cells, marked = [], set()
    for i, epoch in enumerate(evenly(some["epochs"], MOST_EPOCHS)):
        counts = [str(epoch["epoch"]), f"{epoch['of_relation']} of {epoch['distinct']}"]
        entities = epoch["entities"]
        cells.append([*counts, *(e["label"] + "*" * bool(e["known"]) for e in entities)])
        marked |= {(i, j) for j, e in enumerate(entities, len(counts)) if e["of_relation"]}
    return Table(
        headings=["epoch", f"{side}s", f"{most} of the entities", *[""] * (most - 1)],
        cells=cells,
        marked=marked,
        narrow=2,
        note=f"bold, and counted as {side}s: a {side} of {some['relation']} in training; "
        "*: makes a known triple",
        rows=_rows(log, some, every),
    )


def _rows(log: Log, some: dict[str, Any], every: dict[str, Any]) -> list[Row]:
    query = {part: some[part] or "" for part in ("head", "relation", "tail")}
    rows = []
    for shown_epoch, epoch in zip(some["epochs"], every["epochs"], strict=True):
        names = {entity["name"] for entity in shown_epoch["entities"]}
        about = {**log.about, **query, "epoch": epoch["epoch"]}
        rows += [{**about, **e, "shown": e["name"] in names} for e in epoch["entities"]]
    return rows
