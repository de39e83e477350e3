"""What to do where a training run does not fit: refuse it with remedies, or place its caches."""

from bisect import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.training.memory import CHECKPOINTS, Place, Statement
from nscaching.units import readable

AFTER_FAILURE = 0.75  # after a failed allocation, advice aims at this part of the statement


def check(found: Statement) -> None:
    """Refuse a training run that needs more than there is."""
    if (place := found.lacking()) is None:
        return
    available = found.available[place] or 0
    largest = sorted((i for i in found.items if i.place == place), key=lambda i: -i.bytes)[:3]
    parts = ", ".join(f"{item.what} {readable(item.bytes)}" for item in largest)
    where = f"on the disk of {found.out}" if place == "disk" else f"of {place}"
    needs = f"this training needs {readable(found.peak(place))} {where} ({parts})"
    has = f"{readable(available)} are available"
    raise UserError(f"{needs} and {has}; {remedy(found, place, available)}")


def place_caches(
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: Path | None = None,
    snapshots: int = 0,
    checkpoints: int = CHECKPOINTS,
) -> tuple[TrainConfig, str]:
    """Return the settings with the place of the caches, where that is left open, and why there.

    Host memory costs time, so the caches go there only if the GPU's is too small otherwise.
    """
    if config.cache.cache_place != "auto":
        return config, "asked for"
    here = config.changed(cache_place="device")
    found = Statement(graph, here, out, snapshots, checkpoints)
    if not (found.on_gpu and found.cached) or found.lacking() != "GPU memory":
        return here, ""
    away = config.changed(cache_place="host")
    if found.with_config(away).lacking() is not None:
        return here, ""
    needs, has = (
        readable(n or 0) for n in (found.peak(found.device), found.available["GPU memory"])
    )
    return away, f"on the GPU the training would need {needs}, and {has} are available"


def advice(graph: KnowledgeGraph, config: TrainConfig) -> str:
    found = Statement(graph, config)
    place, peak = found.device, found.peak(found.device)
    fixed = sum(item.bytes for item in found.items if item.fixed and item.place == place)
    bound = fixed + round(AFTER_FAILURE * (peak - fixed))
    if (available := found.available[place]) is not None:
        bound = min(bound, available)
    said = f"out of {place}: this training was to need {readable(peak)}"
    return f"{said}; {remedy(found, place, bound)}"


def remedy(found: Statement, place: Place, bound: int) -> str:
    """Name the flags of which each alone makes a training run fit into some bytes."""
    config, cached = found.config, found.cached > 0

    def fits(**settings: Any) -> bool:  # noqa: ANN401  (fields of TrainConfig)
        try:
            return found.with_config(config.changed(**settings)).peak(place) <= bound
        except UserError:  # settings that contradict each other
            return False

    def largest(name: str, values: Sequence[Any], **rest: int) -> Any:  # noqa: ANN401
        count = bisect(values, False, key=lambda value: not fits(**rest, **{name: value}))
        return values[count - 1] if count else None

    least_n1 = found.negatives if cached else 1
    budgets = [f"{percent}%" for percent in range(1, 100)] if cached else []
    n1 = min(config.cache.n1, len(found.graph.entities) + 1)  # a cache holds each entity once
    dims = range(1, config.dim)
    optimizers = ("row-adam", "adagrad", "row-adagrad")
    others = [("kernels", "auto"), *(("optimizer", name) for name in optimizers)]
    if cached and place != "disk":
        others += [("cache_place", "host"), ("cache_place", "disk")]
    settings = config.flat()
    other = [(name, [value]) for name, value in others if settings[name] != value]
    lower: dict[str, Sequence[Any]] = {
        "batch_size": range(1, config.batch_size),
        "negatives": range(1, found.negatives),
    }
    if found.objective == "softmax":
        lower["tail"] = range(1, min(config.tail, len(found.graph.entities)))
    lower |= {"n1": range(least_n1, n1), "dim": dims}
    lower["cache_memory"] = budgets
    alone = [(name, largest(name, values)) for name, values in [*other, *lower.items()]]
    words = [f"{flag(name)} {value}" for name, value in alone if value]
    if words:
        return f"{' or '.join(words)} would fit"
    least = {"batch_size": 1} if place != "disk" else {}
    least |= {"n1": least_n1} if cached else {}
    if dim := largest("dim", dims, **least):
        words = [f"{flag(name)} {value}" for name, value in (least | {"dim": dim}).items()]
        return f"{' '.join(words)} together would fit"
    return "no setting makes so large a graph fit"
