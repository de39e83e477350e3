"""The statement of a training: every item with its bytes, the sums, and what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nscaching.training.memory import lasting, machine, passing
from nscaching.training.memory.plan import Plan

__all__ = ["Item", "Place", "Statement", "readable", "state"]

Place = Literal["memory", "GPU memory", "disk"]

# What libraries load and compile only when it is needed: kernels, plots.
LATER = 320 << 20


@dataclass(frozen=True)
class Item:
    """One thing that needs room."""

    what: str
    bytes: int
    place: Place
    passing: bool = False
    """Whether it is there for a moment only: of such, the largest counts and not the sum."""
    fixed: bool = False
    """Whether no setting changes it."""


@dataclass(frozen=True)
class Statement:
    """What a training needs, and what is there."""

    items: tuple[Item, ...]
    there: dict[Place, int | None]
    """Bytes that can be had at each place, what this process holds already included."""
    where: dict[Place, str]
    """The places in words."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The places that anything is needed of."""
        return tuple(dict.fromkeys(item.place for item in self.items))

    def total(self, place: Place) -> int:
        """Return the most bytes that are needed of a place at once."""
        mine = [item for item in self.items if item.place == place]
        moments = [item.bytes for item in mine if item.passing]
        return sum(item.bytes for item in mine if not item.passing) + max(moments, default=0)

    def lacking(self) -> Place | None:
        """Return the first place that has too little."""
        for place in self.places:
            there = self.there[place]
            if there is not None and self.total(place) > there:
                return place
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "items": [vars(item) for item in self.items],
            "places": {
                place: {"needs": self.total(place), "there": self.there[place]}
                for place in self.places
            },
            "fits": self.lacking() is None,
        }


def state(plan: Plan, out: Path | None = None) -> Statement:
    """State what a plan needs of memory and, with a folder to write, of the disk."""
    on_gpu = plan.device.type != "cpu"
    device: Place = "GPU memory" if on_gpu else "memory"
    held, free = machine.memory_held(), machine.memory_free()  # before more indices are built
    other = max(0, held - lasting.indices_there(plan.graph))  # which are an item of their own
    numbers = sum(table.numel() for table in plan.model.parameters())
    items = [
        Item("held already: program and data", other, "memory", fixed=True),
        Item("libraries loaded and compiled on the way", LATER, "memory", fixed=True),
        Item("indices of known answers", lasting.graph_indices(plan), "memory"),
        Item(f"parameters: {numbers:,} numbers", lasting.model_state(plan.model), device),
        Item("copy of the best parameters", lasting.best_copy(plan), device),
        Item("parameters to start from", lasting.start(plan), "memory"),
        Item("optimizer state", lasting.optimizer_state(plan), device),
        Item("gradients", lasting.gradients(plan), device),
        Item("rows kept ready", lasting.ready_rows(plan), device),
        Item(f"caches: {plan.all_keys:,} keys × {plan.config.n1}", lasting.caches(plan), device),
        Item("snapshots of the caches", _snapshots(plan, out), "memory"),
        Item("queries of the caches' keys", lasting.queries_of_keys(plan), device),
        Item("known triples", lasting.known_triples(plan), device),
        Item("generator", lasting.generator(plan), device),
        Item("training triples", lasting.training_triples(plan), device),
        Item("ranked triples", lasting.ranked_queries(plan), device),
        Item("for a moment: building the indices", passing.building(plan), "memory", True),
        Item("for a moment: a training step", passing.training_step(plan), device, True),
        Item("for a moment: a chunk of a ranking", passing.ranking_chunk(plan), device, True),
    ]
    if on_gpu:  # whatever is moved there was here before
        start = 2 * lasting.model_state(plan.model) + lasting.training_triples(plan)
        items.append(Item("for a moment: on the way to the GPU", start, "memory", True))
    there: dict[Place, int | None] = {"memory": None if free is None else free + held}
    where: dict[Place, str] = {"memory": "of memory", "GPU memory": "of GPU memory"}
    if on_gpu:
        there["GPU memory"] = machine.gpu_free()
    if out is not None:
        files = lasting.run_folder(plan)
        items += [Item(f"run folder: {what}", size, "disk") for what, size in files.items()]
        there["disk"] = machine.disk_free(out)
        where["disk"] = f"on the disk of {out}"
    kept = tuple(item for item in items if item.bytes)
    return Statement(kept, there, where)


def _snapshots(plan: Plan, out: Path | None) -> int:
    """Return the bytes of all snapshots that are kept, or of the one on its way to the disk."""
    count = plan.snapshots if out is None else min(plan.snapshots, 1)
    return count * lasting.caches(plan)


def readable(size: int) -> str:
    """Write bytes as people do."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):,.1f} {unit}"
    return f"{size / 1024:,.1f} KiB"
