"""The first page, the page of a run, search and completion."""

from __future__ import annotations

import dataclasses

from nscaching import __version__
from nscaching.serve.parameters import Parameter
from nscaching.serve.shapes import Home, Overview, Search
from nscaching.serve.views._base import TOP, Request, View

LARGEST, RELATIONS = 24, 12  # entities and relations on the page of a run


async def _home(asked: Request) -> Home:
    return {"version": __version__, "runs": [run.info() for run in asked.runs.values()]}


async def _overview(asked: Request) -> Overview:
    run = asked.run
    return {
        "about": run.info(),
        "largest": run.found(run.names.search("", LARGEST)),
        "relations": run.found_relations(run.relation_names.search("", RELATIONS)),
    }


async def _search(asked: Request) -> Search:
    run, text, top, kind = asked.run, asked["q"], asked["top"], asked["kind"]

    def work() -> Search:
        entities = run.names.search(text, top) if kind != "relation" else []
        relations = run.relation_names.search(text, top) if kind != "entity" else []
        return {
            "text": text,
            "entities": run.found(entities),
            "relations": run.found_relations(relations),
        }

    found: Search = await run.quickly(work)
    return found


TEXT = Parameter("q", "beginnings of words of a name; empty: the most linked")
KIND = Parameter("kind", "what to search", default="both", choices=("both", "entity", "relation"))

VIEWS = (
    View("home", "/", "The runs that are served", Home, _home),
    View("run", "/r/{run}", "A run, and where to begin", Overview, _overview),
    View(
        "search",
        "/r/{run}/search",
        "Find entities and relations by the beginnings of words",
        Search,
        _search,
        (TEXT, KIND, dataclasses.replace(TOP, default=20)),
    ),
)
