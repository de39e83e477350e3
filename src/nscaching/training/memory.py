"""The memory and disk that a training run needs, computed from its settings before it starts."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranking import chunk_size
from nscaching.kernels import choose_device, choose_kernels
from nscaching.kernels.codes import FORMS
from nscaching.kernels.losses import ALL_ENTITIES
from nscaching.kernels.sizes import INT, LONG, Learned
from nscaching.models import Model, build
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective
from nscaching.training import machine

Place = Literal["memory", "GPU memory", "disk"]

LIBRARIES = 320 << 20  # loaded or compiled when training first needs them
CHECKPOINTS = 3  # the two newest, and the one that is being written
REST = 20_000  # of a checkpoint: two random states, names, counters
EPOCH_LINE, PAGES = 600, 400_000  # a line of metrics.jsonl; card, plot, report, calibration
AFTER_FAILURE = 0.75  # after a failed allocation, advice aims at this part of the statement


class Item(NamedTuple):
    """A part of a training run with its bytes."""

    what: str
    bytes: int
    place: Place
    transient: bool = False  # a step or a chunk allocates the bytes and frees them again
    fixed: bool = False  # no setting changes the bytes


class Statement:
    """The bytes that a training run needs, part by part, and the bytes that are available."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        out: Path | None = None,
        snapshots: int = 0,
    ) -> None:
        # Before anything else is loaded: what comes later is counted by items of its own.
        held, free, built = machine.memory_held(), machine.memory_available(), graph.index_bytes()
        self.graph, self.config, self.out, self.snapshots = graph, config, out, snapshots
        self.sampler = SAMPLERS.get(config.sampler)
        self.negatives = config.negatives or self.sampler.usual_count
        device = choose_device(config.device)
        self.on_gpu = device.type != "cpu"
        self.device: Place = "GPU memory" if self.on_gpu else "memory"
        self.kernels = choose_kernels(config.kernels, device).name
        self.model = self._build(config.model, config.reciprocal)
        self.objective = choose_objective(config, self.model)
        softmax = self.objective == "softmax"
        one_side = self.sampler.one_side and self.objective not in ALL_ENTITIES
        steps = self.kernels if one_side or softmax else "reference"
        self.learned = Learned(self.model, config.optimizer, steps, softmax)
        plain = config.filter_known or self.model.form not in FORMS or softmax
        self.compiled_refresh = self.kernels != "reference" and not plain
        self.generators = []  # one, or none
        if self.sampler.has_generator:
            steps = "reference" if self.sampler.scores_all else self.kernels
            name = self.sampler.own_generator or config.gan.generator
            self.generators = [Learned(self._build(name), "adam", steps)]
        self.triples, self.batch = len(graph.train), min(config.batch_size, len(graph.train))
        self.every_triple = self.triples + len(graph.valid) + len(graph.test)
        self.keys = sum(map(len, graph.train_index.values()))  # distinct queries of both sides
        self.cached = config.cache.n1 if self.sampler.has_cache else 0  # entities of each key
        self.caches = INT * self.keys * self.cached
        self.available: dict[Place, int | None] = {
            "memory": None if free is None else free + held,
            "GPU memory": machine.gpu_available() if self.on_gpu else None,
            "disk": None if out is None else machine.disk_available(out),
        }
        items = [
            Item("program and data, held already", max(0, held - built), "memory", fixed=True),
            Item("libraries loaded and compiled later", LIBRARIES, "memory", fixed=True),
            *self._persistent(),
            *self._transient(),
            *self._files(),
        ]
        self.items = [item for item in items if item.bytes]
        self.places: list[Place] = list(dict.fromkeys(item.place for item in self.items))

    def _build(self, name: str | type[Model], reciprocal: bool = False) -> Model:
        try:
            with torch.device("meta"):  # shapes and no numbers
                return build(name, self.graph, self.config.dim, self.config.norm, reciprocal)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"the memory of model {name} cannot be computed: {reason}") from error

    def peak(self, place: Place) -> int:
        """Return the persistent bytes at a place plus the largest transient item."""
        mine = [item for item in self.items if item.place == place]
        transient = [item.bytes for item in mine if item.transient]
        return sum(item.bytes for item in mine) - sum(transient) + max(transient, default=0)

    def lacking(self) -> Place | None:
        for place in self.places:
            available = self.available[place]
            if available is not None and self.peak(place) > available:
                return place
        return None

    def check(self) -> None:
        if (place := self.lacking()) is None:
            return
        available = self.available[place] or 0
        largest = sorted((i for i in self.items if i.place == place), key=lambda i: -i.bytes)[:3]
        parts = ", ".join(f"{item.what} {readable(item.bytes)}" for item in largest)
        where = f"on the disk of {self.out}" if place == "disk" else f"of {place}"
        needs = f"this training needs {readable(self.peak(place))} {where} ({parts})"
        has = f"{readable(available)} are available"
        raise UserError(f"{needs} and {has}; {remedy(self, place, available)}")

    def to_dict(self) -> dict[str, Any]:
        items = [item._asdict() for item in self.items]
        sums = {at: {"needs": self.peak(at), "available": self.available[at]} for at in self.places}
        return {"items": items, "places": sums, "fits": self.lacking() is None}

    def _persistent(self) -> Iterator[Item]:
        """Yield what stays allocated: exact bytes, but for the indices, which have a bound."""
        config, triples, keys, every = self.config, self.triples, self.keys, self.every_triple
        # A held-out triple adds at most one key on each side.
        indices = 4 * LONG * (keys + 1) + 2 * LONG * (2 * every - triples)
        indices += 2 * INT * (triples + every)
        filters = config.filter_known or self.sampler.filters_known
        known = 2 * LONG * triples + keys if filters else 0
        if self.sampler.scores_all:  # answers by key, where they begin and how many they are
            known += 2 * INT * triples + 2 * LONG * keys
        if self.objective == "kvsall":
            known += 2 * LONG * triples + (LONG * (keys + 2) if self.on_gpu else 0)
        splits = [len(self.graph.valid) if config.validate_every else 0, len(self.graph.test)]
        # Relation and order; of each side anchor, answer and the range of known answers.
        answers = 2 * INT * every if self.on_gpu else 0
        ranked = sum((2 + 2 * 4) * LONG * count + answers for count in splits if count)
        ready = self.learned.ready
        if self.kernels == "numba" and self.compiled_refresh and self.caches:
            # In a refresh, each thread marks the entities that it has seen.
            ready += LONG * (config.threads or torch.get_num_threads()) * self.model.entities
        rounded = self.learned.compiled and config.cache.candidate_rows == "bfloat16"
        if self.kernels == "triton" and rounded and self.objective != "softmax":
            ready += self.learned.table // 2
        numbers = sum(table.numel() for table in self.model.parameters())
        start = self.learned.state if config.pretrain else 0
        snapshots = self.snapshots if self.out is None else min(self.snapshots, 1)
        yield Item("indices of known answers", indices, "memory")
        yield Item("snapshots of the caches", snapshots * self.caches, "memory")
        yield Item("parameters to start from", start, "memory")
        on_device = {
            f"parameters: {numbers:,} numbers": self.learned.state,
            "copy of the best parameters": self.learned.state,
            "optimizer state": self.learned.optimizer,
            "gradients": self.learned.gradients,
            "rows kept ready": ready,
            f"caches: {keys:,} keys × {self.cached}": self.caches,
            "queries of the caches' keys": 2 * LONG * keys if self.cached else 0,
            "known triples": known,
            "generator": sum(each.kept + each.gradients for each in self.generators),
            # Three columns, two keys, and the order of an epoch.
            "training triples": (3 + 2 + 1) * LONG * triples,
            "ranked triples": ranked,
        }
        for what, count in on_device.items():
            yield Item(what, count, self.device)

    def _transient(self) -> Iterator[Item]:
        """Yield what a step or a chunk allocates: generous formulas of the largest tensors."""
        start = 8 * LONG * self.every_triple  # sorting takes eight numbers of each triple
        if self.on_gpu:  # tables are made in memory, then copied
            start = max(start, 2 * self.learned.state + 6 * LONG * self.triples)
        yield Item("transient: building indices and tables", start, "memory", True)
        yield Item("transient: a training step", self._step(), self.device, True)
        most = max(len(self.graph.valid), len(self.graph.test))
        chunk = min(chunk_size(self.model), most)
        ranking = self.learned.against_all(chunk, gradients=False) if most else 0
        yield Item("transient: a chunk of a ranking", ranking, self.device, True)

    def _step(self) -> int:
        config, batch = self.config, self.batch
        if self.objective in ALL_ENTITIES:
            steps = [self.learned.against_all(2 * batch, gradients=True)]
        elif self.objective == "softmax":
            tail = min(config.tail, self.model.entities)
            steps = [self.learned.softmax(batch, self.cached, tail)]
        else:
            steps = [self.learned.step(batch, 1 + self.negatives)]
        for generator in self.generators:
            if self.sampler.scores_all:
                steps.append(generator.against_all(3 * batch, gradients=True))
            else:
                steps.append(generator.step(batch, config.cache.n1))
        if self.sampler.has_cache and self.objective != "softmax":
            ready = self.learned.compiled and config.cache.candidate_rows == "float32"
            refresh = 0 if ready else 4 * self.learned.table
            if config.cache.draw != "uniform" or not self.compiled_refresh:
                # Ids, scores and noise of the candidates; pieces of their rows.
                refresh += 12 * LONG * batch * (config.cache.n1 + config.cache.n2)
                refresh += (3 << 30) if self.on_gpu else (64 << 20)
            steps.append(refresh)
        return max(steps)

    def _files(self) -> Iterator[Item]:
        """Yield the files of a run folder at the time when they take most of the disk."""
        if self.out is None:
            return
        graph, state = self.graph, self.learned.state
        parts = [self.learned, *self.generators]
        checkpoint = state + sum(each.kept for each in parts) + self.caches + REST
        names = [*graph.entities, *graph.relations, *graph.labels, *graph.labels.values()]
        some = names[:: max(1, len(names) // 10_000)]  # a sample tells the length of a name
        text = sum(len(name.encode(errors="replace")) + len('"",\n') for name in some)
        labelled = sum(len(part.triples) for part in graph.labelled.values())
        data = INT * (3 * self.every_triple + 4 * labelled) + text * len(names) // max(1, len(some))
        files = {
            "model": 2 * state,  # a better model is written beside the last one
            "cache": self.caches + sum(each.state for each in self.generators),
            "snapshots": self.snapshots * self.caches,
            "data": data,
            "checkpoints": CHECKPOINTS * checkpoint,
            "lines and pages": EPOCH_LINE * self.config.epochs + PAGES,
        }
        for what, count in files.items():
            yield Item(f"run folder: {what}", count, "disk")


def readable(count: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):,.1f} {unit}"
    return f"{count / 1024:,.1f} KiB"


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
            changed = config.changed(**settings)
            return Statement(found.graph, changed, found.out, found.snapshots).peak(place) <= bound
        except UserError:  # settings that contradict each other
            return False

    def largest(name: str, values: Sequence[Any], **rest: int) -> Any:  # noqa: ANN401
        count = bisect(values, False, key=lambda value: not fits(**rest, **{name: value}))
        return values[count - 1] if count else None

    least_n1 = found.negatives if cached else 1
    n1 = min(config.cache.n1, len(found.graph.entities) + 1)  # a cache holds each entity once
    dims = range(1, config.dim)
    others = [("kernels", "auto"), ("optimizer", "row-adam"), ("optimizer", "adagrad")]
    other = [(name, [value]) for name, value in others if getattr(config, name) != value]
    lower = {"batch_size": range(1, config.batch_size), "negatives": range(1, found.negatives)}
    if found.objective == "softmax":
        lower["tail"] = range(1, min(config.tail, len(found.graph.entities)))
    lower |= {"n1": range(least_n1, n1), "dim": dims}
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
