"""A relation: its figures, inverse and typical answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nscaching.data.index import Ids
from nscaching.serve.parameters import Parameter
from nscaching.serve.runs import ServedRun
from nscaching.serve.shapes import Relation, RelationFigures, RelationList, Typical
from nscaching.serve.views._base import Request, View

TYPICAL, EXAMPLES = 12, 6


async def _listed(run: ServedRun) -> list[dict[str, Any]]:
    """Return what is known about each relation, in the order of their triples; made once."""

    def work() -> list[dict[str, Any]]:
        from nscaching.audit.listing import list_relations

        return list_relations(run.graph)

    found: list[dict[str, Any]] = await run.slowly(("relations",), work, once=True)
    return found


def _figures(run: ServedRun, found: dict[str, Any]) -> RelationFigures:
    counterparts = [c for c in found["counterparts"] if c["kind"] == "inverse"]
    inverse = [run.named_relation(run.graph.relation_id(c["relation"])) for c in counterparts]
    relation = run.named_relation(run.graph.relation_id(found["name"]))
    return {
        "relation": relation,
        "triples": found["triples"],
        "heads": found["heads"],
        "tails": found["tails"],
        "tails_per_head": found["tails_per_head"],
        "heads_per_tail": found["heads_per_tail"],
        "mapping": found["class"],
        "kinds": found["kinds"],
        "inverse": [relation] if "symmetric" in found["kinds"] else inverse,
    }


async def _relations(asked: Request) -> RelationList:
    run = asked.run
    return {"relations": [_figures(run, found) for found in await _listed(run)]}


async def _relation(asked: Request) -> Relation:
    run = asked.run
    relation = await run.relation(asked["name"])
    name = run.graph.relations[relation]
    found = next(each for each in await _listed(run) if each["name"] == name)
    triples = run.facts.triples[run.facts.triples[:, 1] == relation]
    links = run.facts.links[triples[:, 0]] + run.facts.links[triples[:, 2]]
    best = triples[np.argsort(-links, kind="stable")[:: max(1, len(triples) // EXAMPLES)]]
    return {
        "figures": _figures(run, found),
        "counterparts": [
            {
                "relation": run.named_relation(run.graph.relation_id(each["relation"])),
                "kind": each["kind"],
                "common": each["common"],
                "share": each["share"],
            }
            for each in found["counterparts"]
        ],
        "heads": _typical(run, triples[:, 0]),
        "tails": _typical(run, triples[:, 2]),
        "examples": [
            [run.named(h), run.named_relation(r), run.named(t)]
            for h, r, t in best[:EXAMPLES].tolist()
        ],
    }


def _typical(run: ServedRun, column: Ids) -> list[Typical]:
    entities, count = np.unique(column, return_counts=True)
    order = np.argsort(-count, kind="stable")[:TYPICAL]
    chosen = zip(entities[order].tolist(), count[order].tolist(), strict=True)
    return [
        {**run.named(entity), "count": often, "share": often / len(column)}
        for entity, often in chosen
    ]


VIEWS = (
    View(
        "relations",
        "/r/{run}/relations",
        "All relations with their figures",
        RelationList,
        _relations,
    ),
    View(
        "relation",
        "/r/{run}/relation",
        "A relation: figures, inverse, typical heads and tails",
        Relation,
        _relation,
        (Parameter("name", "a relation, by name or label", required=True),),
    ),
)
