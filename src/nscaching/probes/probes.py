"""The probes of one training run, together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.kernels import Kernels
from nscaching.kernels.state import State, join, part
from nscaching.models import Model
from nscaching.probes.changes import ChangeMeter
from nscaching.probes.config import ProbeConfig
from nscaching.probes.repeats import RepeatMeter
from nscaching.probes.watch import Watch, watched_triples
from nscaching.samplers import Sampler
from nscaching.samplers.cache import NSCaching
from nscaching.training.batches import TrainingTriples
from nscaching.training.objective import choose_objective

__all__ = ["Finding", "Probes"]

# Copies of a cache that there must be room for on a GPU, before one is made there.
ROOM = 8


@dataclass(frozen=True)
class Finding:
    """What probes found after an epoch, apart from its figures."""

    epoch: int
    scores: list[dict[str, Any]] = field(default_factory=list)
    """Lines of scores.jsonl."""
    cache: dict[str, Tensor] = field(default_factory=dict)
    """A copy of the whole cache, where a snapshot was due; on the device, if there is much room."""


class Probes:
    """Looks at a training run; never changes it."""

    def __init__(
        self,
        asked: ProbeConfig,
        graph: KnowledgeGraph,
        config: TrainConfig,
        model: Model,
        sampler: Sampler,
        triples: TrainingTriples,
        kernels: Kernels,
        seed: int,
    ) -> None:
        asked.check_possible(config)
        if asked.probe_test and not len(graph.test):
            raise UserError(f"{flag('probe_test')}: {graph.name} has no test triples")
        self.asked, self.model, self.sampler, self.kernels = asked, model, sampler, kernels
        self.trace_test = asked.probe_test
        self.repeats = None
        if asked.probe_repeats:
            relation, relations = triples.columns[1], len(graph.relations)
            self.repeats = RepeatMeter(asked.probe_repeats, relation, relations, sampler)
        self.changes = None
        if asked.probe_changes:
            self.changes = ChangeMeter(self._cache(flag("probe_changes")).cache, seed, kernels)
        if asked.snapshots:
            self._cache(flag("snapshots"))
        self.watch = None
        if asked.watch or asked.watch_triple:
            margin = config.margin if choose_objective(config, model) == "margin" else None
            watched, device = watched_triples(graph, asked, seed), triples.columns.device
            self.watch = Watch(graph, watched, margin, device)

    def _cache(self, probe: str) -> NSCaching:
        if not isinstance(self.sampler, NSCaching):
            sampler = f"{flag('sampler')} {self.sampler.config.sampler}"
            raise UserError(f"{probe}: {sampler} keeps no cache")
        return self.sampler

    def figures(self, epoch: int) -> dict[str, float]:
        """Return what belongs into the record of an epoch that has just ended."""
        found = {} if self.repeats is None else self.repeats.read(epoch)
        return found if self.changes is None else found | self.changes.read()

    def look(self, epoch: int, last: bool = False) -> Finding:
        """Return what is to be kept of the end of an epoch; 0 is the start."""
        finding = Finding(epoch)
        if self.watch is not None and (last or epoch % self.asked.watch_every == 0):
            finding.scores.extend(self.watch.read(self.model, self.kernels, epoch))
        if epoch in self.asked.snapshots:
            finding.cache.update({name: _copy(ids) for name, ids in self.sampler.state().items()})
        return finding

    def checkpoint(self) -> State:
        """Return what probes remember."""
        return join(**{name: meter.checkpoint() for name, meter in self._meters().items()})

    def restore(self, state: State) -> None:
        """Take what they remembered."""
        for name, meter in self._meters().items():
            meter.restore(part(state, name))

    def _meters(self) -> dict[str, RepeatMeter | ChangeMeter]:
        meters = {"repeats": self.repeats, "changes": self.changes}
        return {name: meter for name, meter in meters.items() if meter is not None}


def _copy(ids: Tensor) -> Tensor:
    """Return a copy, where the tensor is unless it would take much of the room that is left."""
    if ids.is_cuda and ROOM * ids.nbytes > torch.cuda.mem_get_info(ids.device)[0]:
        return ids.cpu()  # for which training has to wait
    return ids.clone()
