"""The cache of a query over the epochs that were kept, beside what the model thinks now."""

from __future__ import annotations

from typing import Any

from nscaching.errors import UserError
from nscaching.serve.parameters import Parameter
from nscaching.serve.refusals import Refusal
from nscaching.serve.runs import ServedRun
from nscaching.serve.shapes import Cache, CacheEpoch
from nscaching.serve.views._base import HEAD, TAIL, Request, View
from nscaching.serve.views.question import answer

SHOWN = 12  # entities of an epoch
EPOCHS = 12  # epochs, of more the first, the last and some between


async def _cache(asked: Request) -> Cache:
    run = asked.run
    head, relation, tail = asked["head"], asked["relation"], asked["tail"]
    if bool(head) == bool(tail):
        raise Refusal("bad_parameter", "give relation and one of head and tail")
    anchor, number = await run.entity(head or tail), await run.relation(relation)

    def work() -> dict[str, Any]:
        name, of = run.graph.entities[anchor], run.graph.relations[number]
        given = (name, of, None) if head else (None, of, name)
        try:
            return run.whole().inspect(*given, top=SHOWN)
        except UserError as reason:
            raise Refusal("not_there", run.without_paths(str(reason))) from None

    found: dict[str, Any] = await run.slowly(("cache", bool(head), anchor, number), work)
    now = await answer(run, _marked(asked), SHOWN)
    side = run.named(anchor)
    return {
        "head": side if head else None,
        "relation": run.named_relation(number),
        "tail": None if head else side,
        "epochs": [_epoch(run, each) for each in _some(found["epochs"])],
        "now": now["answers"],
    }


def _marked(asked: Request) -> Request:
    return Request(asked.runs, asked.name, {**asked.values, "known": "mark", "any": False})


def _epoch(run: ServedRun, found: dict[str, Any]) -> CacheEpoch:
    named = [{**one, **run.named(run.graph.entity_id(one["name"]))} for one in found["entities"]]
    return {**found, "entities": named}  # type: ignore[typeddict-item]


def _some(epochs: list[Any]) -> list[Any]:
    if len(epochs) <= EPOCHS:
        return epochs
    return [epochs[i * (len(epochs) - 1) // (EPOCHS - 1)] for i in range(EPOCHS)]


VIEWS = (
    View(
        "cache",
        "/r/{run}/cache",
        "The cache of a query by epoch, and the answers of the model",
        Cache,
        _cache,
        (HEAD, Parameter("relation", "the relation", required=True), TAIL),
        form=True,
    ),
)
