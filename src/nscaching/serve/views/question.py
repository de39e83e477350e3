"""Questions with two parts of a triple, why a triple is plausible, two runs side by side."""

from __future__ import annotations

import asyncio
from typing import Any

from nscaching.errors import UserError
from nscaching.serve.batching import Asked
from nscaching.serve.parameters import Parameter
from nscaching.serve.refusals import Refusal
from nscaching.serve.runs import ServedRun
from nscaching.serve.shapes import Answer, Comparison, Explanation, Question, Side
from nscaching.serve.views._base import HEAD, RELATION, TAIL, TOP, Request, View

REASONS = 6  # of each kind
COMPARED = 100  # answers among which the place in the other run is looked for


async def answer(run: ServedRun, asked: Request, top: int) -> Question:
    """Answer the question that head, relation and tail leave open."""
    given = [asked["head"], asked["relation"], asked["tail"]]
    gaps = [place for place, text in enumerate(given) if not text]
    if len(gaps) != 1:
        raise Refusal("bad_parameter", "give two of head, relation and tail")
    gap, (h, r, t) = gaps[0], given
    head_id = await run.entity(h) if h else 0
    relation_id = await run.relation(r) if r else 0
    ids = head_id, relation_id, await run.entity(t) if t else 0
    one = Asked(gap, ids, top, asked["known"] == "mark", asked["any"])
    found = await run.batcher.ask(one)
    names = [run.named(ids[0]), run.named_relation(ids[1]), run.named(ids[2])]
    head, relation, tail = (None if place == gap else names[place] for place in range(3))
    return {
        "head": head,
        "relation": relation,
        "tail": tail,
        "known_facts_left_out": found["known_facts_left_out"],
        "fitted_on_queries": found["fitted_on_queries"],
        "answers": [_answer(run, gap, each) for each in found["answers"]],
    }


def _answer(run: ServedRun, gap: int, found: dict[str, Any]) -> Answer:
    if gap == 1:
        named = run.named_relation(run.graph.relation_id(found["name"]))
    else:
        named = run.named(run.graph.entity_id(found["name"]))
    return {
        **named,
        "rank": found["rank"],
        "score": found["score"],
        "probability": found["probability"],
        "known": found["known"],
        "of_relation": found.get("of_relation"),
    }


async def _question(asked: Request) -> Question:
    return await answer(asked.run, asked, asked["top"])


async def _explain(asked: Request) -> Explanation:
    run = asked.run
    head, relation = await run.entity(asked["head"]), await run.relation(asked["relation"])
    ids = head, relation, await run.entity(asked["tail"])

    def work() -> Explanation:
        graph, whole = run.graph, run.whole()
        names = graph.entities[ids[0]], graph.relations[ids[1]], graph.entities[ids[2]]
        found = whole.explain(*names, top=REASONS)
        try:
            chance: float | None = float(whole.probabilities([names])[0])
        except UserError:
            chance = None
        head, tail = run.named(ids[0]), run.named(ids[2])
        named = {"head": head, "relation": run.named_relation(ids[1]), "tail": tail}
        return {**found, **named, "probability": chance}  # type: ignore[typeddict-item]

    made: Explanation = await run.slowly(("explain", *ids), work)
    return made


async def _compare(asked: Request) -> Comparison:
    names = [asked[which] or list(asked.runs)[min(i, len(asked.runs) - 1)] for i, which in PAIR]
    runs = [asked.run_called(name) for name in names]
    found = await asyncio.gather(
        *(answer(run, asked, COMPARED) for run in runs), return_exceptions=True
    )
    questions = []
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, Refusal):
            raise each
        questions.append(each)
    if all(isinstance(each, Refusal) for each in questions):
        raise questions[0]  # type: ignore[misc]
    places = [_places(each) for each in questions]
    sides: list[Side] = []
    for run, each, elsewhere in zip(runs, questions, places[::-1], strict=True):
        if isinstance(each, Refusal):
            sides.append(
                {"run": run.slug, "question": None, "missing": each.message, "other_rank": []}
            )
            continue
        shown = each["answers"][: asked["top"]]
        sides.append(
            {
                "run": run.slug,
                "question": {**each, "answers": shown},
                "missing": "",
                "other_rank": [elsewhere.get(one["name"]) for one in shown],
            }
        )
    return {"runs": sides}


def _places(question: Question | Refusal) -> dict[str, int]:
    if isinstance(question, Refusal):
        return {}
    return {one["name"]: one["rank"] for one in question["answers"]}


PAIR = tuple(enumerate(("a", "b")))
ASKED = (
    HEAD,
    RELATION,
    TAIL,
    TOP,
    Parameter("known", "hide known facts, or mark them", default="hide", choices=("hide", "mark")),
    Parameter("any", "rank by score alone, whatever the type", "flag", default=False),
)
WHOLE = tuple(Parameter(each.name, each.meaning, required=True) for each in (HEAD, RELATION, TAIL))

VIEWS = (
    View(
        "question",
        "/r/{run}/question",
        "The best answers to two of head, relation and tail",
        Question,
        _question,
        ASKED,
        form=True,
    ),
    View(
        "explain",
        "/r/{run}/explain",
        "The training facts that speak for a triple",
        Explanation,
        _explain,
        WHOLE,
        form=True,
    ),
    View(
        "compare",
        "/compare",
        "Two runs on the same question",
        Comparison,
        _compare,
        (
            Parameter("a", "the first run; empty: the first that is served"),
            Parameter("b", "the second run; empty: the second that is served"),
            *ASKED,
        ),
        form=True,
    ),
)
