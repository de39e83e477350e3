"""The probes of one training run: figures of epochs, watched triples, snapshots of the cache."""

from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side, distinct
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranking import chunk_size, id_tensor
from nscaching.kernels import Kernels, Negatives, State, join, part
from nscaching.kernels.choose import ordered
from nscaching.models import Model, finite
from nscaching.probes import ProbeConfig
from nscaching.probes.meters import ChangeMeter, RepeatMeter
from nscaching.samplers import Sampler

# Score differences of a watched triple: quantiles 0, 0.005, …, 1, and how many of the largest.
QUANTILES, TOP = 201, 100

# A snapshot is copied on the GPU only if the free memory would hold this many copies.
ROOM = 8


class Finding(NamedTuple):
    """Findings of probes after an epoch, besides the figures in its record."""

    epoch: int
    scores: list[dict[str, Any]]  # lines of scores.jsonl
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
        self.asked, self.graph, self.model, self.sampler = asked, graph, model, sampler
        self.margin, self.watched = margin, _watched_triples(graph, asked, seed)
        self.meters: dict[str, RepeatMeter | ChangeMeter] = {}
        self.repeats = None
        if asked.probe_repeats:
            relations = len(graph.relations)
            self.repeats = RepeatMeter(asked.probe_repeats, relation, relations, sampler.entities)
            self.meters["repeats"] = self.repeats
        if asked.probe_changes:
            state = sampler.state()
            rows = {side: state[f"{side.value}_cache"] for side in Side}
            here = all(ids.device.type == sampler.device.type for ids in rows.values())
            kernels = sampler.kernels if here else Kernels()  # rows may be in host memory
            self.meters["changes"] = ChangeMeter(rows, seed, kernels)

    def record(self, rows: Tensor, negatives: Negatives) -> None:
        """See the negatives [B, K] of a step on the training triples in some rows [B]."""
        if self.repeats is not None:
            self.repeats.record(rows, negatives)

    def join(self) -> None:
        """Let the end of a step wait until its negatives are recorded."""
        if self.repeats is not None:
            self.repeats.join()

    def figures(self, epoch: int) -> dict[str, float]:
        found = [meter.read(epoch) for meter in self.meters.values()]
        return {name: figure for figures in found for name, figure in figures.items()}

    def look(self, epoch: int, last: bool = False) -> Finding:
        """Return the findings at the end of an epoch; epoch 0 is the start."""
        due = last or epoch % self.asked.watch_every == 0
        state = self.sampler.state() if epoch in self.asked.snapshots else {}
        copies = {name: _copy(ids) for name, ids in state.items()}
        return Finding(epoch, self._score_differences(epoch) if due else [], copies)

    def _score_differences(self, epoch: int) -> list[dict[str, Any]]:
        """Return a line of scores.jsonl for each triple and side that has negatives."""
        graph, lines, chunk = self.graph, [], chunk_size(self.model)
        for side, begin in product(Side, range(0, len(self.watched), chunk)):
            some = self.watched[begin : begin + chunk]
            found = zip(some.tolist(), *self._differences(side, some), strict=True)
            lines += [
                {
                    "epoch": epoch,
                    "head": graph.entities[head],
                    "relation": graph.relations[relation],
                    "tail": graph.entities[tail],
                    "side": side.value,
                    "differences": _short(quantiles),
                    "top": _short(top),
                    "margin": self.margin,
                }
                for (head, relation, tail), quantiles, top in found
                if top
            ]
        return lines

    @torch.no_grad()
    def _differences(self, side: Side, triples: Ids) -> tuple[list[list[float]], list[list[float]]]:
        """Return quantiles and largest values of f(negative) − f(positive) for each triple."""
        head, relation, tail = triples.T
        anchor, answer = side.query(head, tail)
        ids = partial(id_tensor, device=self.model.entity.device)
        asked = ids(answer).unsqueeze(1)
        score_all = self.sampler.kernels.score_all
        scores = finite(score_all(self.model, side, ids(anchor), ids(relation)))
        difference = scores - scores.gather(1, asked)
        row, entity = self.graph.filter_index[side].known(anchor, relation)
        known = torch.zeros_like(difference, dtype=torch.bool)
        known[ids(row), ids(entity)] = True
        known.scatter_(1, asked, True)  # a watched triple need not be in the graph
        difference = ordered(difference.masked_fill(known, float("-inf")))
        first = known.sum(1)  # where the differences of negatives begin
        size = difference.shape[1] - first
        share = torch.linspace(0, 1, QUANTILES, dtype=torch.float64, device=asked.device)
        exact = (size - 1).clamp(min=0).unsqueeze(1) * share
        last = difference.shape[1] - 1
        below = (first.unsqueeze(1) + exact.floor().long()).clamp_(max=last)
        above = (below + 1).clamp_(max=last)
        low, high = (difference.gather(1, at).double() for at in (below, above))
        quantiles = torch.lerp(low, high, exact - exact.floor()).tolist()
        largest = difference[:, -TOP:].flip(1).tolist()
        return quantiles, [top[:count] for top, count in zip(largest, size.tolist(), strict=True)]

    def checkpoint(self) -> State:
        return join(**{name: meter.checkpoint() for name, meter in self.meters.items()})

    def restore(self, state: State) -> None:
        for name, meter in self.meters.items():
            meter.restore(part(state, name))


def _check(asked: ProbeConfig, graph: KnowledgeGraph, sampler: Sampler) -> None:
    asked.check_possible(sampler.config)
    if asked.probe_test and not len(graph.test):
        raise UserError(f"{flag('probe_test')}: {graph.name} has no test triples")
    config = sampler.config
    if asked.probe_repeats and config.objective == "softmax":
        reason = f"{flag('objective')} softmax draws no single negatives"
        raise UserError(f"{flag('probe_repeats')}: {reason}")
    for name, possible, reason in (
        ("probe_repeats", sampler.count, "has no negatives"),
        ("probe_changes", sampler.has_cache, "keeps no cache"),
        ("snapshots", sampler.has_cache, "keeps no cache"),
    ):
        if getattr(asked, name) and not possible:
            raise UserError(f"{flag(name)}: {flag('sampler')} {config.sampler} {reason}")
    for name in ("probe_changes", "snapshots"):
        if getattr(asked, name) and not config.cache.n1:
            entities, least = len(graph.entities), max(1, len(graph.entities) // 2)
            why = f"{flag('n1')} 0 keeps no cache"
            if config.tail >= entities:  # as is chosen for a small graph
                cure = f"{flag('n1')} {least} keeps one"
                why = f"the softmax is over all {entities:,} entities, without a cache; {cure}"
            raise UserError(f"{flag(name)}: {why}")


def _copy(ids: Tensor) -> Tensor:
    """Return a copy on the same device, or on the CPU if the GPU has little free memory."""
    if ids.is_cuda and ROOM * ids.nbytes > torch.cuda.mem_get_info(ids.device)[0]:
        return ids.cpu()  # training waits for this copy
    return ids.clone()


def _watched_triples(graph: KnowledgeGraph, probes: ProbeConfig, seed: int) -> Ids:
    """Return the watched triples [n, 3]: the named ones, then random ones of training."""
    if probes.watch > len(graph.train):
        there = f"{graph.name} has {len(graph.train):,} training triples"
        raise UserError(f"{flag('watch')} {probes.watch}: {there}")
    drawn = np.random.default_rng(seed).choice(len(graph.train), probes.watch, replace=False)
    named = [
        (graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail))
        for head, relation, tail in map(ProbeConfig.parts, probes.watch_triple)
    ]
    return distinct(np.concatenate([np.array(named, np.int32).reshape(-1, 3), graph.train[drawn]]))


def _short(values: list[float]) -> list[float]:
    """Return the numbers to six digits: more digits are noise and double the file."""
    return [float(f"{value:.6g}") for value in values]
