"""How far negatives score below their positive: D = f(negative) − f(positive) of watched triples.

Drawn is the complementary cumulative distribution P(D ≥ x). With the margin loss a negative below
D = −margin teaches nothing; the dashed line marks this value.
"""

from collections.abc import Callable

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.paper.figures._drawing import Line, Page, Panel, Row, evenly
from nscaching.paper.figures._logs import Log, shown
from nscaching.probes.files import SCORES
from nscaching.runs.escaping import shorten
from nscaching.runs.folder import Record

MOST_LINES = 8
UNWATCHED = f"no scores of watched triples ({SCORES}); nscaching train --watch N records them"
QUANTILES, TOP = 101, 40  # points of a line: all over, and more of them where negatives are rare


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return one page with two panels for each run: one triple over epochs, triples at the end."""
    logs = shown(logs, lambda log: "" if log.scores() else UNWATCHED, notes)
    panels = [panel for log in logs for panel in _panels(log, len(logs) > 1, notes)]
    title = logs[0].title if len(logs) == 1 else ""
    return [Page(panels, 2, title, panel_height=4.0)]


def _panels(log: Log, several: bool, notes: list[str]) -> list[Panel]:
    records = log.scores()
    side = "tail" if any(record["side"] == "tail" for record in records) else "head"
    records = [record for record in records if record["side"] == side]
    first, last = _triple(records[0]), max(record["epoch"] for record in records)
    over_epochs = [record for record in records if _triple(record) == first]
    at_the_end = [record for record in records if record["epoch"] == last]
    for what, found in (("epochs", over_epochs), ("triples", at_the_end)):
        if len(found) > MOST_LINES:
            notes.append(f"{log.where}: {MOST_LINES} of {len(found)} recorded {what} are shown")
    negative = r"h, r, \bar{t}" if side == "tail" else r"\bar{h}, r, t"
    margin = records[0].get("margin")
    mark = None if margin is None else -margin
    words = f"D = −margin = {mark:g}".replace("-", "−") if margin is not None else ""

    def panel(title: str, chosen: list[Record], name: Callable[[Record], str]) -> Panel:
        shown = evenly(chosen, MOST_LINES)
        return Panel(
            f"$D = f({negative}) - f(h, r, t)$",
            r"share of negatives with $D \geq x$",
            [Line(name(record), _rows(log, record), "difference", "ccdf") for record in shown],
            (log.title, title) if several else (title,),
            log_y=True,
            ordered=chosen is over_epochs,
            legend=True,
            mark=mark,
            mark_label=words,
        )

    return [
        panel(_name(log.graph, first, 48), over_epochs, lambda r: f"epoch {r['epoch']}"),
        panel(f"epoch {last}", at_the_end, lambda r: _name(log.graph, _triple(r))),
    ]


def _triple(record: Record) -> tuple[str, str, str]:
    return record["head"], record["relation"], record["tail"]


def _name(graph: KnowledgeGraph, triple: tuple[str, str, str], most: int = 44) -> str:
    head, relation, tail = triple
    labels = graph.labels
    parts: tuple[str, ...] = labels.get(head, head), relation, labels.get(tail, tail)
    if sum(map(len, parts)) > most:
        parts = tuple(shorten(part, most // 3) for part in parts)
    return f"({', '.join(parts)})"


def _rows(log: Log, record: Record) -> list[Row]:
    about = {**log.about, **{key: record[key] for key in ("head", "relation", "tail", "side")}}
    about |= {"epoch": record["epoch"], "margin": record.get("margin")}
    try:
        negatives = _negatives(log.graph, record)
    except UserError as error:
        raise UserError(f"{log.where}: {SCORES}: {error}") from error
    points = _ccdf(record, negatives)
    return [{**about, "difference": float(x), "ccdf": float(y)} for x, y in points]


def _ccdf(record: Record, negatives: int) -> list[tuple[float, float]]:
    """Return points (x, P(D ≥ x)), from quantiles and, where they are too coarse, the top.

    Where each single negative is known the share falls in steps: there are none between them.
    """
    shares = np.linspace(1, 0, len(record["differences"]))
    quantiles = evenly(list(zip(shares, record["differences"], strict=True)), QUANTILES)
    top = record["top"]
    points = [(x, share) for share, x in quantiles if share * negatives > len(top)]
    places = sorted(set(map(round, np.geomspace(1, max(1, len(top)), TOP))), reverse=True)
    for place, before in zip(places, [0, *places], strict=False) if top else ():
        if before == place + 1:
            points.append((top[place], place / negatives))
        points.append((top[place - 1], place / negatives))
    return points


def _negatives(graph: KnowledgeGraph, record: Record) -> int:
    """Return how many entities make no known triple in the place that was replaced."""
    head, tail = graph.entity_id(record["head"]), graph.entity_id(record["tail"])
    side, relation = Side(record["side"]), graph.relation_id(record["relation"])
    anchor, answer = side.query(head, tail)
    index = graph.filter_index[side]
    _, known = index.known(np.array([anchor], np.int32), np.array([relation], np.int32))
    # The triple itself is no negative, even where the graph does not know the triple.
    return max(len(graph.entities) - len({answer, *known.tolist()}), len(record["top"]), 1)
