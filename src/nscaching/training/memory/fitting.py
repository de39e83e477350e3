"""Refuse what cannot fit, with the flags that would make it fit: computed, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig, flag
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.training.memory.plan import Plan
from nscaching.training.memory.statement import Place, Statement, readable, state

__all__ = ["advice", "check", "remedies"]

# What may be lowered, the least harmful first.
NUMBERS = ("batch_size", "negatives", "n1", "dim")
OTHERS = (("kernels", "auto"), ("optimizer", "row-adam"), ("optimizer", "adagrad"))
# After an allocation failed, the statement was too low: so much of it is aimed at.
AFTER_FAILURE = 0.75


def check(
    graph: KnowledgeGraph, config: TrainConfig, out: Path | None = None, snapshots: int = 0
) -> None:
    """Refuse a training that needs more than there is."""
    plan = Plan(graph, config, snapshots)
    found = state(plan, out)
    place = found.lacking()
    if place is not None:
        raise UserError(refusal(plan, found, place))


def refusal(plan: Plan, found: Statement, place: Place) -> str:
    """Say what needs how much, what is there, and what would fit."""
    there = found.there[place] or 0
    needs = f"this training needs {readable(found.total(place))} {found.where[place]}"
    largest = sorted((i for i in found.items if i.place == place), key=lambda i: -i.bytes)[:3]
    parts = ", ".join(f"{item.what} {readable(item.bytes)}" for item in largest)
    return f"{needs} ({parts}) and there are {readable(there)}; {_remedy(plan, place, there)}"


def advice(graph: KnowledgeGraph, config: TrainConfig) -> str:
    """Say what to lower after the memory was not enough for a training."""
    plan = Plan(graph, config)
    found = state(plan)
    place: Place = "GPU memory" if plan.device.type != "cpu" else "memory"
    total, there = found.total(place), found.there[place]
    held = sum(item.bytes for item in found.items if item.fixed and item.place == place)
    bound = held + round(AFTER_FAILURE * (total - held))
    bound = bound if there is None else min(bound, there)
    said = f"out of {place}: this training was to need {readable(total)}"
    return f"{said}; {_remedy(plan, place, bound)}"


def _remedy(plan: Plan, place: Place, bound: int) -> str:
    found = list(remedies(plan, place, bound))
    if found:
        return f"{' or '.join(found)} would fit"
    least = {"batch_size": 1} if place != "disk" else {}
    if plan.sampler.has_cache:
        least["n1"] = max(1, plan.negatives)
    words = [f"{flag(name)} {value}" for name, value in least.items()]
    if dim := _largest(plan.changed(**least), "dim", 1, plan.config.dim, place, bound):
        words.append(f"{flag('dim')} {dim}")
        return f"{' '.join(words)} together would fit"
    return "no setting makes so large a graph fit"


def remedies(plan: Plan, place: Place, bound: int) -> Iterator[str]:
    """Yield the flags of which each alone makes a plan fit into some bytes."""
    for name, value in OTHERS:
        if getattr(plan.config, name) != value and _fits(plan, {name: value}, place, bound):
            yield f"{flag(name)} {value}"
    for name in NUMBERS:
        least = max(1, plan.negatives) if name == "n1" and plan.sampler.has_cache else 1
        asked = plan.negatives if name == "negatives" else getattr(plan.config, name)
        if name == "n1":  # a cache holds each entity once
            asked = min(asked, len(plan.graph.entities) + 1)
        if found := _largest(plan, name, least, asked, place, bound):
            yield f"{flag(name)} {found}"


def _largest(plan: Plan, name: str, least: int, asked: int, place: Place, bound: int) -> int:
    """Return the largest value of a setting below the one asked for that fits; 0: none does."""
    if asked <= least or not _fits(plan, {name: least}, place, bound):
        return 0
    low, high = least, asked  # low fits, high does not
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        if _fits(plan, {name: middle}, place, bound):
            low = middle
        else:
            high = middle
    return low


def _fits(plan: Plan, settings: dict[str, Any], place: Place, bound: int) -> bool:
    out = Path() if place == "disk" else None
    try:
        return state(plan.changed(**settings), out).total(place) <= bound
    except UserError:  # settings that do not go together
        return False
