"""The probes of one training run: repeat ratio, changed elements, watched triples, snapshots."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Negatives
from nscaching.kernels.choose import ordered
from nscaching.kernels.state import State, join, part
from nscaching.models import Model
from nscaching.probes import ProbeConfig
from nscaching.probes.watch import Watch, watched_triples
from nscaching.samplers import Sampler

# Negatives kept of a window (8 bytes each, and as much again while they are counted). Of a larger
# window, only the negatives in one part of all possible triples are kept.
MOST_KEPT = 1 << 26
MOST_OF_AN_EPOCH = 1 << 28

# An odd number that spreads codes over all 64 bits (2⁶⁴ divided by the golden ratio).
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)

# Of each side of a cache at most this many keys are compared, chosen at random.
KEYS = 512

# A snapshot is copied on the GPU only if the free memory would hold this many copies.
ROOM = 8


class Finding(NamedTuple):
    """Findings of probes after an epoch, besides the figures in its record."""

    epoch: int
    scores: list[dict[str, Any]]
    """Lines of scores.jsonl."""
    cache: dict[str, Tensor]
    """A copy of the whole cache if a snapshot was due; on the device if it has much free memory."""


class Probes:
    """Measures a training run and never changes it; without settings, does nothing."""

    def __init__(
        self,
        asked: ProbeConfig,
        graph: KnowledgeGraph,
        model: Model,
        sampler: Sampler,
        relation: Tensor,
        margin: float | None,
        seed: int,
    ) -> None:
        """Take the relations [n] of the training triples, and the margin if the loss has one."""
        _check(asked, graph, sampler)
        self.asked, self.sampler = asked, sampler
        self.meters: dict[str, RepeatMeter | ChangeMeter] = {}
        self.repeats = None
        if asked.probe_repeats:
            relations = len(graph.relations)
            self.repeats = RepeatMeter(asked.probe_repeats, relation, relations, sampler.entities)
            self.meters["repeats"] = self.repeats
        if asked.probe_changes:
            state = sampler.state()
            rows = {side: state[f"{side.value}_cache"] for side in Side}
            self.meters["changes"] = ChangeMeter(rows, seed, sampler.kernels)
        watched = watched_triples(graph, asked, seed)
        self.watch = Watch(graph, watched, model, sampler.kernels, margin)

    def record(self, rows: Tensor, negatives: Negatives) -> None:
        """See the negatives [B, K] of a step on the training triples in some rows [B]."""
        if self.repeats is not None:
            self.repeats.record(rows, negatives)

    def join(self) -> None:
        """Let the end of a step wait until its negatives are recorded."""
        if self.repeats is not None:
            self.repeats.join()

    def figures(self, epoch: int) -> dict[str, float]:
        """Return the figures for the record of the epoch that has just ended."""
        found = [meter.read(epoch) for meter in self.meters.values()]
        return {name: figure for figures in found for name, figure in figures.items()}

    def look(self, epoch: int, last: bool = False) -> Finding:
        """Return the findings at the end of an epoch; epoch 0 is the start."""
        due = last or epoch % self.asked.watch_every == 0
        state = self.sampler.state() if epoch in self.asked.snapshots else {}
        copies = {name: _copy(ids) for name, ids in state.items()}
        return Finding(epoch, self.watch.read(epoch) if due else [], copies)

    def checkpoint(self) -> State:
        return join(**{name: meter.checkpoint() for name, meter in self.meters.items()})

    def restore(self, state: State) -> None:
        for name, meter in self.meters.items():
            meter.restore(part(state, name))


def _check(asked: ProbeConfig, graph: KnowledgeGraph, sampler: Sampler) -> None:
    """Refuse probes that cannot measure anything."""
    asked.check_possible(sampler.config)
    if asked.probe_test and not len(graph.test):
        raise UserError(f"{flag('probe_test')}: {graph.name} has no test triples")
    for name, possible, reason in (
        ("probe_repeats", sampler.count, "has no negatives"),
        ("probe_changes", sampler.has_cache, "keeps no cache"),
        ("snapshots", sampler.has_cache, "keeps no cache"),
    ):
        if getattr(asked, name) and not possible:
            sampler_name = f"{flag('sampler')} {sampler.config.sampler}"
            raise UserError(f"{flag(name)}: {sampler_name} {reason}")


def _copy(ids: Tensor) -> Tensor:
    """Return a copy on the same device, or on the CPU if the GPU has little free memory."""
    if ids.is_cuda and ROOM * ids.nbytes > torch.cuda.mem_get_info(ids.device)[0]:
        return ids.cpu()  # training waits for this copy
    return ids.clone()


class RepeatMeter:
    """Records the negatives of every step in fixed memory, and counts them once a window.

    A CUDA graph can hold the recording. On a GPU the recording runs on a second stream, and the
    rest of the step does not wait.
    """

    def __init__(self, window: int, relation: Tensor, relations: int, entities: int) -> None:
        self.window, self.entities = window, entities
        if entities**2 * relations >= 1 << 63:
            reason = "so many entities and relations cannot be numbered"
            raise UserError(f"{flag('probe_repeats')}: {reason}")
        self.base = (relation * entities**2).unsqueeze(1)  # [n, 1]
        self.pairs = relation.new_empty(0, 0)
        """For each training triple [n, K], h̄·|E| + t̄ of its negatives in this epoch."""
        self.kept: list[Tensor] = []
        self.aside = torch.cuda.Stream(relation.device) if relation.is_cuda else None
        self.parts = 1
        """All possible triples are divided into so many parts, one of which is counted."""

    def record(self, rows: Tensor, negatives: Negatives) -> None:
        """Record the negatives [B, K] of the training triples in some rows [B]."""
        if not len(self.pairs):  # the first step, before any CUDA graph
            self._make_room(negatives.head.shape[1])
        if self.aside is not None:
            self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):  # None: the same stream
            pairs = torch.add(negatives.tail, negatives.head, alpha=self.entities)
            self.pairs.index_copy_(0, rows, pairs)

    def join(self) -> None:
        if self.aside is not None:
            torch.cuda.current_stream().wait_stream(self.aside)

    def _make_room(self, count: int) -> None:
        size = len(self.base) * count
        if not 0 < size <= MOST_OF_AN_EPOCH:
            takes = f"takes 1 to {MOST_OF_AN_EPOCH:,} negatives in an epoch, not {size:,}"
            raise UserError(f"{flag('probe_repeats')} {takes}")
        self.pairs = self.base.new_zeros(len(self.base), count)
        self.parts = -(-size * self.window // MOST_KEPT)

    def read(self, epoch: int) -> dict[str, float]:
        """End an epoch; at the end of a window, return the share of repeats in it."""
        codes = (self.base + self.pairs).view(-1)
        if self.parts > 1:  # by triple, so that all repeats of a triple are counted
            codes = codes[(codes * SPREAD >> 32) % self.parts == 0]
        self.kept.append(codes)
        if epoch % self.window:
            return {}
        every, self.kept = torch.cat(self.kept), []
        return {"repeat_ratio": 1 - distinct(every) / max(1, len(every))}

    def checkpoint(self) -> State:
        """Return the negatives of this epoch and of those before it in the window."""
        kept = {str(number): codes for number, codes in enumerate(self.kept)}
        return {"pairs": self.pairs, **join(kept=kept)}

    def restore(self, state: State) -> None:
        pairs, kept = state["pairs"], part(state, "kept")
        if len(pairs):
            self._make_room(pairs.shape[1])
            self.pairs.copy_(pairs)
        self.kept = [kept[str(n)].clone().to(self.base.device) for n in range(len(kept))]


def distinct(codes: Tensor) -> int:
    if codes.is_cuda:
        return len(codes.unique())  # unique sorts the codes without their places
    codes = ordered(codes)
    return int((codes[1:] != codes[:-1]).sum()) + bool(len(codes))


class ChangeMeter:
    """Compares the cache rows of some keys with the rows of the epoch before."""

    def __init__(self, cache: Mapping[Side, Tensor], seed: int, kernels: Kernels) -> None:
        self.cache, self.kernels, self.keys = cache, kernels, {}
        random, shares = np.random.default_rng(seed), []
        for side, ids in cache.items():
            keys = np.arange(len(ids))
            if len(keys) > KEYS:
                keys = np.sort(random.choice(keys, KEYS, replace=False))
            self.keys[side] = torch.from_numpy(keys).to(ids.device)
            shares += [1 / len(cache) / len(keys)] * len(keys)
        self.before = torch.cat([ids[self.keys[side]] for side, ids in cache.items()])
        """The rows of the epoch before, heads first."""
        self.share = torch.tensor(shares, dtype=torch.float64, device=self.before.device)
        """The weight of each row in the mean: both sides have the same weight."""
        self.counts, self.mean = torch.zeros_like(self.share), self.share.new_zeros(())
        # On a GPU, a few small kernels take less time than their launches one by one.
        self.count = kernels.capture(self._count, lambda: "count")

    def read(self, _epoch: int) -> dict[str, float]:
        """Return the mean number of new elements of a row, mean over both sides."""
        self.count(self.share)
        return {"changed_elements": float(self.mean)}

    def _count(self, share: Tensor) -> None:
        """Set the weighted mean of the new elements, and remember the rows of now."""
        sizes = [len(keys) for keys in self.keys.values()]
        parts = zip(self.before.split(sizes), self.counts.split(sizes), strict=True)
        for (side, keys), (before, counts) in zip(self.keys.items(), parts, strict=True):
            self.kernels.new_elements(self.cache[side], keys, before, counts)
        self.mean.copy_((self.counts * share).sum())

    def checkpoint(self) -> State:
        return {"before": self.before}

    def restore(self, state: State) -> None:
        self.before.copy_(state["before"])
