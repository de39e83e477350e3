"""The probes of one training run."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import Kernels
from nscaching.kernels.state import State, join, part
from nscaching.models import Model
from nscaching.probes.changes import ChangeMeter
from nscaching.probes.config import ProbeConfig
from nscaching.probes.repeats import RepeatMeter
from nscaching.probes.watch import Watch, watched_triples
from nscaching.samplers import Sampler

# A snapshot is copied on the GPU only if the free memory would hold this many copies.
ROOM = 8


@dataclass(frozen=True)
class Finding:
    """Findings of probes after an epoch, besides the figures in its record."""

    epoch: int
    scores: list[dict[str, Any]] = field(default_factory=list)
    """Lines of scores.jsonl."""
    cache: dict[str, Tensor] = field(default_factory=dict)
    """A copy of the whole cache if a snapshot was due; on the device if it has much free memory."""


class Probes:
    """Measures a training run and never changes it."""

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
        if asked.probe_test and not len(graph.test):
            raise UserError(f"{flag('probe_test')}: {graph.name} has no test triples")
        if (asked.probe_changes or asked.snapshots) and not sampler.has_cache:
            name = "probe_changes" if asked.probe_changes else "snapshots"
            raise UserError(
                f"{flag(name)}: {flag('sampler')} {sampler.config.sampler} keeps no cache"
            )
        self.asked, self.model, self.sampler, self.kernels = asked, model, sampler, kernels
        self.trace_test = asked.probe_test
        self.repeats = self.changes = self.watch = None
        if asked.probe_repeats:
            relations = len(graph.relations)
            self.repeats = RepeatMeter(asked.probe_repeats, relation, relations, sampler)
        if asked.probe_changes:
            state = sampler.state()
            rows = {side: state[f"{side.value}_cache"] for side in Side}
            self.changes = ChangeMeter(rows, seed, kernels)
        if asked.watch or asked.watch_triple:
            watched = watched_triples(graph, asked, seed)
            self.watch = Watch(graph, watched, margin, relation.device)

    def figures(self, epoch: int) -> dict[str, float]:
        """Return the figures for the record of the epoch that has just ended."""
        found = {} if self.repeats is None else self.repeats.read(epoch)
        return found if self.changes is None else found | self.changes.read()

    def look(self, epoch: int, last: bool = False) -> Finding:
        """Return the findings at the end of an epoch; epoch 0 is the start."""
        finding = Finding(epoch)
        if self.watch is not None and (last or epoch % self.asked.watch_every == 0):
            finding.scores.extend(self.watch.read(self.model, self.kernels, epoch))
        if epoch in self.asked.snapshots:
            finding.cache.update({name: _copy(ids) for name, ids in self.sampler.state().items()})
        return finding

    def checkpoint(self) -> State:
        """Return the state of all probes."""
        return join(**{name: meter.checkpoint() for name, meter in self._meters().items()})

    def restore(self, state: State) -> None:
        """Restore the state of all probes."""
        for name, meter in self._meters().items():
            meter.restore(part(state, name))

    def _meters(self) -> dict[str, RepeatMeter | ChangeMeter]:
        meters = {"repeats": self.repeats, "changes": self.changes}
        return {name: meter for name, meter in meters.items() if meter is not None}


def _copy(ids: Tensor) -> Tensor:
    """Return a copy on the same device, or on the CPU if the GPU has little free memory."""
    if ids.is_cuda and ROOM * ids.nbytes > torch.cuda.mem_get_info(ids.device)[0]:
        return ids.cpu()  # training waits for this copy
    return ids.clone()
