"""The map of the vectors, and what training recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from nscaching.data.index import Longs
from nscaching.serve import plane
from nscaching.serve.parameters import Parameter
from nscaching.serve.runs import ServedRun
from nscaching.serve.shapes import Map, Point, Report
from nscaching.serve.views._base import Request, View

MOST = 1200  # entities of an answer


def _made(run: ServedRun, method: str) -> tuple[plane.Plane, tuple[list[str], Longs]]:
    """Return the map and the types; a map that is not kept yet is made and kept."""
    found = plane.read(run.folder, method, run.epoch, len(run.graph.entities))
    if found is None:
        found = plane.make(run.nearest.vectors, method)
        plane.keep(run.folder, found, run.epoch)
    return found, plane.kinds(run.graph)


async def _map(asked: Request) -> Map:
    run = asked.run
    methods = plane.methods(len(run.graph.entities))
    method = asked["by"] or methods[0]
    if method not in methods:
        raise BY.wrong(method, "one of " + ", ".join(methods))
    made, (kinds, of) = await run.slowly(("map", method), lambda: _made(run, method), True)

    def point(entity: int) -> Point:
        x, y = made.places[entity].tolist()
        return {
            **run.named(entity),
            "x": round(x, 4),
            "y": round(y, 4),
            "kind": int(of[entity]),
            "facts": int(run.facts.links[entity]),
        }

    def work() -> tuple[int, list[Point]]:
        low = np.array([asked["left"], asked["bottom"]])
        high = np.array([asked["right"], asked["top"]])
        inside = ((made.places >= low) & (made.places <= high)).all(1)
        shown = run.names.by_links[inside[run.names.by_links]][:MOST]
        return int(inside.sum()), [point(entity) for entity in shown.tolist()]

    inside, points = await run.quickly(work)
    focus = point(await run.entity(asked["name"])) if asked["name"] else None
    return {
        "method": method,
        "methods": methods,
        "kinds": kinds,
        "entities": len(run.graph.entities),
        "inside": inside,
        "points": points,
        "focus": focus,
    }


async def _report(asked: Request) -> Report:
    run = asked.run
    lines: list[dict[str, Any]] = [dict(line) for line in run.history]
    return {"about": run.info(), "history": lines}


def _bound(name: str, default: float) -> Parameter:
    return Parameter(name, "bound of the part shown", "decimal", False, default, -1e6, 1e6)


BY = Parameter("by", "the method; empty: PCA", choices=("", *("pca", *plane.BETTER)))

VIEWS = (
    View(
        "map",
        "/r/{run}/map",
        f"The vectors in two dimensions, up to {MOST:,} of the most linked in a part",
        Map,
        _map,
        (
            BY,
            Parameter("name", "an entity to mark, by name or label"),
            _bound("left", -1e6),
            _bound("right", 1e6),
            _bound("bottom", -1e6),
            _bound("top", 1e6),
        ),
    ),
    View("report", "/r/{run}/report", "What training recorded", Report, _report),
)
