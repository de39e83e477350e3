"""The probes of one training run."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Negatives
from nscaching.kernels.state import State, join, part
from nscaching.models import Model
from nscaching.probes.changes import ChangeMeter
from nscaching.probes.config import ProbeConfig
from nscaching.probes.repeats import RepeatMeter
from nscaching.probes.watch import Watch, watched_triples
from nscaching.samplers import Sampler

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
        kernels: Kernels,
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
            self.meters["changes"] = ChangeMeter(rows, seed, kernels)
        watched = watched_triples(graph, asked, seed)
        self.watch = Watch(graph, watched, model, kernels, margin)

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
