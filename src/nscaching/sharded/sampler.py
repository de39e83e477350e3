"""The sampler of one rank: draws for whole batches as one process does, and keeps its share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from nscaching.data.index import Side
from nscaching.errors import UserError, flag
from nscaching.kernels import Batch, Negatives, Rivals, State
from nscaching.kernels.nearby import Nearby
from nscaching.models import Form, Model
from nscaching.samplers import SAMPLERS, Sampler
from nscaching.samplers.cached import NSCaching, check_strata
from nscaching.samplers.draws import Draws
from nscaching.samplers.fixed import Uniform
from nscaching.sharded.cache import CacheShard

if TYPE_CHECKING:
    from nscaching.config import TrainConfig
    from nscaching.data.graph import KnowledgeGraph
    from nscaching.sharded.path import Path


@dataclass(frozen=True)
class Share:
    """The queries of a batch that start from entities of this rank.

    With negatives these are the queries of the replaced entities, one for each triple; a softmax
    has the queries of both sides.
    """

    rows: dict[Side, Tensor]  # of the batch, by the side that is asked for
    negatives: Negatives | None  # of the whole batch
    rivals: Rivals | None


class ShardSampler(Sampler):
    """Draws what the sampler of the configuration draws in one process."""

    one_side = True
    in_torch = True
    cache: CacheShard | None = None
    nearby: Nearby | None = None
    refreshing = True

    def __init__(
        self, path: Path, graph: KnowledgeGraph, config: TrainConfig, *given: object,
        **options: object,
    ) -> None:  # fmt: skip
        self.gathered: dict[str, Tensor] = {}
        self.path, self.kind = path, SAMPLERS.get(config.sampler)
        self.shards = path.meeting.shards
        self.has_cache = self.kind.has_cache  # type: ignore[misc]
        super().__init__(graph, config, *given, **options)  # type: ignore[arg-type]
        self.count = config.negatives or self.kind.usual_count

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        config = self.config
        self.fixed: Sampler | None = None
        if not self.has_cache:
            self.fixed = self.kind(graph, config, self.device, self.seed, self.kernels)
            return self.fixed.draws
        draws = Draws(
            graph.train_index, self.entities, len(graph.relations), side=config.side,
            filter_known=False, device=self.device, seed=self.seed, kernels=self.kernels,
        )  # fmt: skip
        softmax, near = config.objective == "softmax", config.cache.near
        if config.cache.n1:
            settings = dataclasses.replace(config.cache, strata=0) if softmax else config.cache
            check_strata(settings, self.entities)
            self.cache = CacheShard(
                graph.train_index, len(graph.relations), settings, draws, self.shards,
                softmax, self.progress,
            )  # fmt: skip
            if softmax and near:
                self.nearby = Nearby.of(graph.train_index, self.entities, near, self.device)
        return draws

    def begin_epoch(self, epoch: int) -> None:
        self.refreshing = (epoch - 1) % (self.config.cache.lazy + 1) == 0

    def sample(self, batch: Batch, model: Model) -> Share:  # type: ignore[override]
        """Draw for a batch, which all ranks have, and say which of its queries are this rank's."""
        mine = self.shards.mine
        self.tick += 1
        if self.config.objective == "softmax":
            ends = {side: side.query(batch.head, batch.tail)[0] for side in Side}
            rows = {side: mine(anchor).nonzero().squeeze(1) for side, anchor in ends.items()}
            return Share(rows, None, self._rivals(batch, model, rows))
        drawn = self.negatives(batch, model)
        assert drawn.replace_head is not None
        of_heads = drawn.replace_head
        rows = {
            Side.HEAD: (of_heads & mine(batch.tail)).nonzero().squeeze(1),
            Side.TAIL: (~of_heads & mine(batch.head)).nonzero().squeeze(1),
        }
        self.drawn = of_heads
        return Share(rows, drawn, None)

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        if self.fixed is not None:
            return self.fixed.negatives(batch, model)
        assert self.cache is not None
        return self.cache.draw(batch, self.count)

    def _rivals(self, batch: Batch, model: Model, rows: dict[Side, Tensor]) -> Rivals:
        rivals = self.rivals(batch, model)
        if self.cache is None:
            return rivals
        keys = [self.cache.rows_of(side, batch.key(side)[rows[side]]) for side in Side]
        access = self.cache.access(keys, model)
        refreshing = self.refreshing
        return dataclasses.replace(rivals, cache=access, nearby=self.nearby, refreshing=refreshing)

    def update(self, batch: Batch, model: Model) -> None:
        if self.cache is not None and self.refreshing and self.config.objective != "softmax":
            drawn = self.drawn if self.config.cache.refresh_side == "drawn" else None
            self.path.refresh(self.cache.due(batch, model, drawn))

    def state(self) -> dict[str, Tensor]:
        """Return the cached rows of all ranks, once they are gathered at the end of a run."""
        return self.gathered

    def checkpoint(self) -> State:
        return self.draws.checkpoint() | ({} if self.cache is None else self.cache.blocks())

    def restore(self, state: State) -> None:
        self.draws.restore(state)
        if self.cache is not None:
            self.cache.restore(state)


def check_shardable(config: TrainConfig, form: Form | None) -> None:
    """Refuse what has no form in shards."""
    kind, cache = SAMPLERS.get(config.sampler), config.cache
    why = ""
    if not issubclass(kind, Uniform | NSCaching):
        why = f"{flag('sampler')} {config.sampler}"
    elif form is None:
        why = f"{flag('model')} {config.model}"
    elif config.validate_candidates:
        why = f"{flag('validate_candidates')} {config.validate_candidates}"
    elif kind.has_cache:
        for name, plain in (
            ("draw", "uniform"), ("cache_memory", None), ("candidate_rows", "float32"),
        ):  # fmt: skip
            if getattr(cache, name) != plain:
                why = f"{flag(name)} {getattr(cache, name)}"
        if cache.cache_place not in ("auto", "device"):
            why = f"{flag('cache_place')} {cache.cache_place}"
        if config.filter_known:
            why = f"{flag('filter_known')} with a cache"
    if why:
        raise UserError(f"{why} trains in one process only: leave out torchrun")
