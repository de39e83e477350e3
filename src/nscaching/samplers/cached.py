"""The sampler ``nscaching``: negatives from the negative cache."""

import dataclasses
import tempfile
from pathlib import Path

from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.kernels import Batch, Negatives, Rivals
from nscaching.kernels.nearby import Nearby
from nscaching.kernels.shards import BLOCKS
from nscaching.models import Model
from nscaching.samplers.base import SAMPLERS, Sampler
from nscaching.samplers.cache import NegativeCache
from nscaching.samplers.draws import Draws
from nscaching.samplers.places import in_host_memory, on_disk
from nscaching.samplers.start import FILL_ROWS
from nscaching.settings import CacheSettings


@SAMPLERS.register("nscaching")
class NSCaching(Sampler):
    """Draws negatives from a ``NegativeCache`` and refreshes the rows of every batch."""

    one_side = True
    has_cache = True
    has_rivals = True
    refreshing = True  # whether the rows of a batch are refreshed in this epoch
    cache: NegativeCache | None = None
    nearby: Nearby | None = None

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        config, entities = self.config, self.entities
        softmax = config.objective == "softmax"  # which draws no single negatives
        self.in_torch = config.cache.draw != "uniform" and not softmax  # torch draws by score
        if not config.cache.n1:  # a softmax with a tail alone
            return super().prepare(graph)
        if config.cache.n1 > entities:
            raise UserError(
                f"{flag('n1')} {config.cache.n1} is larger than the number of entities, "
                f"{entities:,}; give a smaller {flag('n1')}"
            )
        if self.count > config.cache.n1 and not softmax:
            raise UserError(
                f"{flag('negatives')} {self.count} is more than a cache holds, "
                f"{flag('n1')} {config.cache.n1}; give fewer, or a larger {flag('n1')}"
            )
        settings = dataclasses.asdict(config.cache)
        del settings["lazy"]  # of this sampler: the cache is refreshed when it is told to
        del settings["exchange"]  # of several processes
        if softmax:  # which refreshes by its own scores
            settings["strata"] = 0
        else:
            check_strata(config.cache, entities)
        near = settings.pop("near")
        if near and softmax:
            self.nearby = Nearby.of(graph.train_index, entities, near, self.device)
        settings["memory"] = settings.pop("cache_memory")
        new_rows, place = None, settings.pop("cache_place")
        if place == "host":
            new_rows = in_host_memory(self.device)
        elif place == "disk":
            new_rows = on_disk(self.folder or Path(tempfile.gettempdir()))
        self.cache = NegativeCache(
            graph.train, entities, len(graph.relations), seed=self.seed, side=config.side,
            filter_known=config.filter_known, device=self.device, kernels=self.kernels,
            index=graph.train_index, progress=self.progress, new_rows=new_rows, **settings,
        )  # fmt: skip
        if softmax:  # which searches the rows, as refreshes keep them
            for ids in self.cache.rows.values():
                for part in ids.split(FILL_ROWS):
                    part.copy_(part.sort(1).values)
        return self.cache.draws

    def begin_epoch(self, epoch: int) -> None:
        """Refresh in the first of every lazy + 1 epochs only."""
        self.refreshing = (epoch - 1) % (self.config.cache.lazy + 1) == 0

    def phase(self) -> object:
        if self.cache is not None and not self.cache.reached:
            return None  # rows are copied by way of the CPU
        return "refresh" if self.refreshing else "draw"

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        assert self.cache is not None
        if self.cache.shared and self.refreshing:
            # A row that another query left behind is first made the query's own.
            drawn = self.cache.draws.choose_head(batch)
            self.cache.update(batch, model, drawn)
        return self.cache.draw(batch, model, self.count)

    def rivals(self, batch: Batch, model: Model) -> Rivals:
        tail = super().rivals(batch, model)
        if self.cache is None:
            return tail
        access = self.cache.access(batch, model)
        return dataclasses.replace(
            tail, cache=access, nearby=self.nearby, refreshing=self.refreshing
        )

    def update(self, batch: Batch, model: Model) -> None:
        """Refresh the rows of a batch; the scores of a softmax do so themselves."""
        if self.cache is None or self.cache.shared or self.config.objective == "softmax":
            return
        if self.refreshing:
            self.cache.update(batch, model)

    def settle(self) -> None:
        """Put back the rows that a softmax has refreshed."""
        if self.cache is not None:
            self.cache.settle(self.refreshing and self.config.objective == "softmax")

    def plan(self, why: str) -> str:
        if self.cache is None:
            return ""
        return describe(self.config.cache, self.cache, why)

    def state(self) -> dict[str, Tensor]:
        if self.cache is not None:
            self.cache.wait()
        rows = {} if self.cache is None else self.cache.rows
        return {f"{side.value}_cache": ids for side, ids in rows.items()}


def check_strata(settings: CacheSettings, entities: int) -> None:
    """Refuse strata that do not divide a row, or that have fewer entities than slots."""
    strata, n1 = settings.strata, settings.n1
    most = min(BLOCKS, entities // max(1, n1))
    if strata > 1 and (n1 % strata or strata > most):
        why = f"{flag('n1')} {n1} is no multiple of it" if n1 % strata else f"at most {most} here"
        raise UserError(f"{flag('strata')} {strata}: {why}")


PLACES = {"host": "in host memory", "disk": "in a file on the disk"}


def describe(settings: CacheSettings, cache: NegativeCache, why: str) -> str:
    """Say how many rows a cache has within a budget, and where and why they are."""
    rows, keys = sum(map(len, cache.rows.values())), cache.queries
    size = f"{sum(ids.nbytes for ids in cache.rows.values()) / 2**20:,.1f} MiB"
    place = f" {PLACES[settings.cache_place]} ({why})" if settings.cache_place in PLACES else ""
    if not cache.shared:
        enough = f": {settings.cache_memory} suffices" if settings.cache_memory else ""
        return (
            f"{keys:,} queries have a cache each, {size}{place}{enough}" if place or enough else ""
        )
    own = sum(len(shared.own) for shared in cache.shared.values())
    most = -(-(keys - own) // max(1, rows - own))
    return (
        f"{rows:,} cache rows for {keys:,} queries within {settings.cache_memory}, {size}{place}: "
        f"the {own:,} most visited have their own, of the others about {most:,} share one"
    )
