"""The memory and disk that a training run needs, computed from its settings before it starts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.mapped_names import MappedNames
from nscaching.errors import UserError
from nscaching.evaluation.ranking import BUDGET
from nscaching.kernels import choose_device, choose_kernels
from nscaching.kernels.codes import FORMS
from nscaching.kernels.losses import ALL_ENTITIES
from nscaching.kernels.sizes import HEAP, INT, LONG, Learned
from nscaching.models import Model, build
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective, penalty
from nscaching.samplers.shared_rows import check_rows, rows_within
from nscaching.training import machine
from nscaching.training.graph_sizes import Sizes

Place = Literal["memory", "GPU memory", "disk"]

LIBRARIES = 320 << 20  # loaded or compiled when training first needs them
CHECKPOINTS = 3  # the two newest, and the one that is being written; two on a disk that is short
BEST = 2  # files of the best parameters, the latest and a better one; beside those of checkpoints
REST = 15_000  # of a checkpoint: a random state, names, counters
EPOCH_LINE, PAGES = 600, 400_000  # a line of metrics.jsonl; card, plot, report, calibration


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
        graph: KnowledgeGraph | Sizes,
        config: TrainConfig,
        out: Path | None = None,
        snapshots: int = 0,
        checkpoints: int = CHECKPOINTS,
    ) -> None:
        """Take how many checkpoints there can be at one time."""
        # Before anything else is loaded: what comes later is counted by items of its own.
        held, free, built = machine.memory_held(), machine.memory_available(), graph.index_bytes()
        self.graph, self.config, self.out, self.snapshots = graph, config, out, snapshots
        self.checkpoints = checkpoints
        self.sampler = SAMPLERS.get(config.sampler)
        self.negatives = config.negatives or self.sampler.usual_count
        device = choose_device(config.device)
        self.on_gpu = device.type != "cpu"
        self.device: Place = "GPU memory" if self.on_gpu else "memory"
        self.path = choose_kernels(config.kernels, device)
        self.kernels = self.path.name
        self.model = self._build(config.model, config.reciprocal)
        self.objective = choose_objective(config, self.model)
        softmax = self.objective == "softmax"
        one_side = self.sampler.one_side and self.objective not in ALL_ENTITIES
        steps = self.kernels if one_side or softmax else "reference"
        self.triples, self.batch = len(graph.train), min(config.batch_size, len(graph.train))
        places = self._named_by_a_batch() if self._moves_rows_only() else None
        self.learned = Learned(self.model, config.optimizer, steps, softmax, places)
        plain = config.filter_known or self.model.form not in FORMS or softmax
        self.compiled_refresh = self.kernels != "reference" and not plain
        self.generators = []  # one, or none
        if self.sampler.has_generator:
            steps = "reference" if self.sampler.scores_all else self.kernels
            name = self.sampler.own_generator or config.gan.generator
            self.generators = [Learned(self._build(name), "adam", steps)]
        self.every_triple = self.triples + len(graph.valid) + len(graph.test)
        every = config.validate_every if len(graph.valid) else 0
        self.judgements = -(-config.epochs // every) if every else 0  # by the validation triples
        self.keys = sum(map(len, graph.train_index.values()))  # distinct queries of both sides
        self.cached = config.cache.n1 if self.sampler.has_cache else 0  # entities of each key
        self.rows = self._rows_of_caches()  # one for each key, or fewer
        self.caches = INT * self.rows * self.cached
        self.copied = self.rows < self.keys or config.cache.cache_place in ("host", "disk")
        self.available: dict[Place, int | None] = {
            "memory": None if free is None else free + held,
            "GPU memory": machine.gpu_available() if self.on_gpu else None,
            "disk": machine.disk_available(out or Path(tempfile.gettempdir())),
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

    def _rows_of_caches(self) -> int:
        budget, n1 = self.config.cache.cache_memory, self.cached
        if budget is None or not n1:
            return self.keys
        rows = rows_within(budget, self.keys, n1, "cache_memory")
        if rows < self.keys and isinstance(self.graph, KnowledgeGraph):
            check_rows(budget, rows, self.graph.train_index, n1, "cache_memory")
        return rows

    def _build(self, name: str | type[Model], reciprocal: bool = False) -> Model:
        try:
            with torch.device("meta"):  # shapes and no numbers
                graph = cast("KnowledgeGraph", self.graph)  # of which only sizes are looked at
                return build(name, graph, self.config.dim, self.config.norm, reciprocal)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"the memory of model {name} cannot be computed: {reason}") from error

    def _moves_rows_only(self) -> bool:
        config = self.config
        decays = config.penalty_norm != "n3" and penalty(config, self.model) > 0
        return config.optimizer.startswith("row-") or (config.optimizer == "adagrad" and not decays)

    def _named_by_a_batch(self) -> int:
        """Return how many entities a batch names: no more have a gradient in a step on GPUs."""
        config = self.config
        if self.objective == "softmax":  # two queries of each triple
            cached = config.cache.n1 if self.sampler.has_cache else 0
            cached += config.cache.near if cached else 0
            return 2 * self.batch * (2 + cached) + min(config.tail, self.model.entities)
        many = self.negatives > 1 or self.objective == "shifted" or self.sampler.has_weights
        cubes = 2 if config.penalty_norm == "n3" and penalty(config, self.model) else 0
        return self.batch * ((2 + self.negatives if many else 3) + cubes)

    def peak(self, place: Place) -> int:
        """Return the persistent bytes at a place plus the largest transient item."""
        mine = [item for item in self.items if item.place == place]
        transient = [item.bytes for item in mine if item.transient]
        return sum(item.bytes for item in mine) - sum(transient) + max(transient, default=0)

    def with_config(self, config: TrainConfig) -> Statement:
        """Return the statement of the same run with other settings."""
        return Statement(self.graph, config, self.out, self.snapshots, self.checkpoints)

    def lacking(self) -> Place | None:
        for place in self.places:
            available = self.available[place]
            if available is not None and self.peak(place) > available:
                return place
        return None

    def to_dict(self) -> dict[str, Any]:
        items = [item._asdict() for item in self.items]
        sums = {at: {"needs": self.peak(at), "available": self.available[at]} for at in self.places}
        return {"items": items, "places": sums, "fits": self.lacking() is None}

    def _persistent(self) -> Iterator[Item]:
        """Yield what stays allocated: exact bytes, but for the indices, which have a bound."""
        config, triples, keys, every = self.config, self.triples, self.keys, self.every_triple
        # A held-out triple adds at most one key on each side.
        indices = 4 * LONG * (keys + 1) + 4 * LONG * (every - triples)
        indices += 2 * INT * (2 * triples + every)  # with the key of each training triple
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
        neighbours = 0
        if self.objective == "softmax" and self.cached and config.cache.near:
            ends = 2 * triples if self.on_gpu else 0  # a CPU reads them from the index
            neighbours = INT * (ends + 2 * self.model.entities)
        numbers = sum(table.numel() for table in self.model.parameters())
        start = self.learned.state if config.pretrain else 0
        snapshots = self.snapshots if self.out is None else min(self.snapshots, 1)
        yield Item("indices of known answers", indices, "memory")
        yield Item("snapshots of the caches", snapshots * self.caches, "memory")
        yield Item("parameters to start from", start, "memory")
        kept = self.learned.state if self.out is None and self.judgements else 0
        yield Item("copy of the best parameters", kept, "memory")  # else in the run folder
        on_device = {
            f"parameters: {numbers:,} numbers": self.learned.state,
            "optimizer state": self.learned.optimizer,
            "gradients": self.learned.gradients,
            "rows kept ready": ready,
            "queries of the caches' keys": 2 * LONG * keys
            if self.cached and not self.copied
            else 0,
            "finding the rows of queries": LONG * self.rows if self.rows < keys else 0,
            "neighbours of entities": neighbours,
            "known triples": known,
            "generator": sum(each.kept + each.gradients for each in self.generators),
            "training triples": (3 + 2) * INT * triples + LONG,  # and how many were taken
            "ranked triples": ranked,
        }
        for what, count in on_device.items():
            yield Item(what, count, self.device)
        places: dict[str, Place] = {"host": "memory", "disk": "disk"}
        where = places.get(config.cache.cache_place, self.device)
        each = "keys" if self.rows == keys else "rows"
        yield Item(f"caches: {self.rows:,} {each} × {self.cached}", self.caches, where)

    def _transient(self) -> Iterator[Item]:
        """Yield what a step or a chunk allocates: generous formulas of the largest tensors."""
        start = 8 * LONG * self.every_triple  # sorting takes eight numbers of each triple
        if self.rows < self.keys:  # which rows they share is found by sorting keys
            start = max(start, 5 * LONG * self.keys)
        if self.on_gpu:  # some tables are made in memory, then copied
            made = 0 if self.model.starts_anywhere() else self.learned.state
            start = max(start, made + 6 * LONG * self.triples)
        yield Item("transient: building indices and tables", start, "memory", True)
        yield Item("transient: a training step", self._step(), self.device, True)
        most = max(len(self.graph.valid), len(self.graph.test))
        tile = self.path.tile(self.model, BUDGET)
        what = min(tile.queries, most), False, tile.entities, tile.kept
        ranking = self.learned.against_all(*what) if most else 0
        if ranking and self.objective in ALL_ENTITIES and self.learned.table <= HEAP:
            ranking += 0 if self.on_gpu else self._step()  # which the heap may not give back
        yield Item("transient: a chunk of a ranking", ranking, self.device, True)

    def _step(self) -> int:
        config, batch = self.config, self.batch
        if self.objective in ALL_ENTITIES:
            steps = [self.learned.against_all(2 * batch, gradients=True)]
        elif self.objective == "softmax":
            tail = min(config.tail, self.model.entities)
            walks = config.cache.near if self.cached else 0
            steps = [self.learned.softmax(batch, self.cached + walks, tail)]
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
        # Copies of the rows of a batch of both sides, where they belong, and how they are dealt.
        copies = batch * LONG * (8 * self.cached + 24) if self.copied else 0
        return max(steps) + copies

    def _files(self) -> Iterator[Item]:
        """Yield the files of a run folder at the time when they take most of the disk."""
        if self.out is None:
            return
        graph, state = self.graph, self.learned.state
        parts = [self.learned, *self.generators]
        checkpoint = sum(each.in_checkpoint for each in parts) + self.caches + REST
        lists = [graph.entities, graph.relations, list(graph.labels), list(graph.labels.values())]
        count = sum(map(len, lists))
        step = max(1, count // 10_000)  # a sample tells the length of a name
        some = [str(name) for names in lists for name in names[::step]]
        text = sum(len(name.encode(errors="replace")) + len('"",\n') for name in some)
        arrays = LONG + INT if isinstance(graph.entities, MappedNames) else 0  # of each name
        labelled = sum(len(part.triples) for part in graph.labelled.values())
        data = INT * (3 * self.every_triple + 4 * labelled) + text * count // max(1, len(some))
        data += arrays * len(graph.entities)
        files = {
            "model": state * max(1, min(self.judgements, BEST + self.checkpoints - 1)),
            "cache": self.caches + sum(each.state for each in self.generators),
            "snapshots": self.snapshots * self.caches,
            "data": data,
            "lines and pages": EPOCH_LINE * self.config.epochs + PAGES,
            "checkpoints": self.checkpoints * checkpoint,
        }
        available = self.available["disk"]
        if self.checkpoints > 1 and available is not None and sum(files.values()) > available:
            files["checkpoints"] -= checkpoint
        for what, count in files.items():
            yield Item(f"run folder: {what}", count, "disk")


def checkpoints_of(every: float) -> int:
    """Return how many checkpoints there can be: one if only a stop writes one."""
    return CHECKPOINTS if every else 1
