"""An entity: its facts, predicted facts, and the entities with the nearest vectors."""

from __future__ import annotations

import asyncio
from collections import Counter

from nscaching.data.index import Side
from nscaching.serve.batching import Asked
from nscaching.serve.facts import Group
from nscaching.serve.parameters import Parameter
from nscaching.serve.runs import ServedRun
from nscaching.serve.shapes import Entity, FactGroup, FactList, Neighbour, Prediction
from nscaching.serve.views._base import RELATION, Request, View

SHOWN = 8  # facts of a group
GROUPS = 40  # groups of facts
QUESTIONS = 24  # that are asked for predicted facts
EACH = 3  # predicted facts of a question
PREDICTED = 15  # predicted facts
NEAR = 10  # neighbours
PAGE = 100  # facts of a page

NAME = Parameter("name", "an entity, by name or label", required=True)


async def _entity(asked: Request) -> Entity:
    run = asked.run
    entity = await run.entity(asked["name"])
    near: list[tuple[int, float]] = await run.quickly(run.nearest.of, entity, NEAR)
    neighbours: list[Neighbour] = [{**run.named(other), "cosine": cosine} for other, cosine in near]
    return {
        "entity": run.named(entity),
        "facts": int(run.facts.links[entity]),
        "groups": [_group(run, each, 0, SHOWN) for each in run.facts.groups(entity)[:GROUPS]],
        "predictions": await _predictions(run, entity, [other for other, _ in near]),
        "neighbours": neighbours,
    }


def _group(run: ServedRun, group: Group, start: int, most: int) -> FactGroup:
    some = slice(start, start + most)
    others = zip(group.others[some].tolist(), group.splits[some], strict=True)
    return {
        "relation": run.named_relation(group.relation),
        "side": group.side.value,
        "count": len(group.others),
        "others": [{**run.named(other), "split": split} for other, split in others],
    }


async def _predictions(run: ServedRun, entity: int, near: list[int]) -> list[Prediction]:
    """Ask the questions that the entity and its neighbours have answers to; the surest first."""
    kinds = Counter(run.facts.kinds(entity))
    for other in near:
        kinds.update(set(run.facts.kinds(other)))
    questions = [kind for kind, _ in kinds.most_common(QUESTIONS)]
    asked = []
    for side, relation in questions:
        ids = (entity, relation, 0) if side is Side.TAIL else (0, relation, entity)
        asked.append(run.batcher.ask(Asked(2 if side is Side.TAIL else 0, ids, EACH)))
    found: list[Prediction] = []
    for (side, relation), answers in zip(questions, await asyncio.gather(*asked), strict=True):
        for answer in answers["answers"]:
            other = run.graph.entity_id(answer["name"])
            head, tail = (entity, other) if side is Side.TAIL else (other, entity)
            found.append(
                {
                    "head": run.named(head),
                    "relation": run.named_relation(relation),
                    "tail": run.named(tail),
                    "asked": side.value,
                    "score": answer["score"],
                    "probability": answer["probability"],
                }
            )
    found.sort(key=lambda one: (-(one["probability"] or 0.0), -one["score"]))
    return found[:PREDICTED]


async def _facts(asked: Request) -> FactList:
    run = asked.run
    entity, relation = await run.entity(asked["name"]), await run.relation(asked["relation"])
    groups = run.facts.groups(entity)
    mine = [g for g in groups if g.relation == relation and g.side.value == asked["side"]]
    none = Group(relation, Side(asked["side"]), run.facts.triples[:0, 0], [])
    group = mine[0] if mine else none
    start = asked["start"]
    return {"entity": run.named(entity), "start": start, "group": _group(run, group, start, PAGE)}


VIEWS = (
    View(
        "entity",
        "/r/{run}/entity",
        "An entity: facts, predicted facts, nearest entities",
        Entity,
        _entity,
        (NAME,),
    ),
    View(
        "facts",
        "/r/{run}/facts",
        f"The facts of an entity with one relation, {PAGE} at a time",
        FactList,
        _facts,
        (
            NAME,
            Parameter("relation", RELATION.meaning, required=True),
            Parameter("side", "of the other entities", default="tail", choices=("head", "tail")),
            Parameter("start", "first fact", "number", default=0, most=10**9),
        ),
    ),
)
