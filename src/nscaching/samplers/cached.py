"""The sampler ``nscaching``: negatives from the negative cache."""

import dataclasses

from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.kernels import Batch, Negatives, Rivals
from nscaching.models import Model
from nscaching.samplers.base import SAMPLERS, Sampler
from nscaching.samplers.cache import FILL_ROWS, NegativeCache
from nscaching.samplers.draws import Draws


@SAMPLERS.register("nscaching")
class NSCaching(Sampler):
    """Draws negatives from a ``NegativeCache`` and refreshes the rows of every batch."""

    one_side = True
    has_cache = True
    has_rivals = True
    refreshing = True  # whether the rows of a batch are refreshed in this epoch
    cache: NegativeCache | None = None

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
        self.cache = NegativeCache(
            graph.train, entities, len(graph.relations), seed=self.seed, side=config.side,
            filter_known=config.filter_known, device=self.device, kernels=self.kernels,
            index=graph.train_index, progress=self.progress, **settings,
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
        return "refresh" if self.refreshing else "draw"

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        assert self.cache is not None
        return self.cache.draw(batch, model, self.count)

    def rivals(self, batch: Batch, model: Model) -> Rivals:
        tail = super().rivals(batch, model)
        if self.cache is None:
            return tail
        access = self.cache.access(batch, model)
        return dataclasses.replace(tail, cache=access, refreshing=self.refreshing)

    def update(self, batch: Batch, model: Model) -> None:
        """Refresh the rows of a batch; the scores of a softmax do so themselves."""
        if self.refreshing and self.cache is not None and self.config.objective != "softmax":
            self.cache.update(batch, model)

    def state(self) -> dict[str, Tensor]:
        rows = {} if self.cache is None else self.cache.rows
        return {f"{side.value}_cache": ids for side, ids in rows.items()}
