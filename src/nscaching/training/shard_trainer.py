"""The training loop of one process of several: Algorithm 2 on this process's share of each batch.

All processes run the same steps at the same time, and know the same figures after each.
"""

from functools import partial
from typing import Any

from torch import Tensor

from nscaching.data.index import Side
from nscaching.evaluation.ranks import Ranks
from nscaching.kernels.learner import Learner
from nscaching.kernels.shards import Shards
from nscaching.models import Model
from nscaching.runs.folder import Record
from nscaching.samplers.objective import choose_objective
from nscaching.sharded.meeting import Meeting
from nscaching.sharded.path import choose_path
from nscaching.sharded.ranking import ShardQueries, rank_in_shards
from nscaching.sharded.sampler import ShardSampler
from nscaching.sharded.tables import gather, is_sharded, new_model, take_own
from nscaching.sharded.traffic import Training
from nscaching.sharded.world import World
from nscaching.training.best import Best
from nscaching.training.listener import Stage
from nscaching.training.trainer import Parameters, Trainer


class ShardTrainer(Trainer):
    """A trainer whose model, caches and optimizer hold the entities of one rank."""

    model: Model
    sampler: ShardSampler

    def __init__(self, world: World, *given: Any, **options: Any) -> None:  # noqa: ANN401
        self.world = world
        super().__init__(*given, **options)
        self.best = ShardBest(self.model, self.meeting)
        self.shard_queries: dict[str, ShardQueries] = {}

    def _new_model(self, start: Parameters | None, seed: int) -> Model:
        self.shards = Shards(len(self.graph.entities), self.world.size, self.world.rank)
        model = new_model(self.graph, self.config, self.shards, self.device, seed)
        if start is not None:
            model.load_state_dict(take_own(start, self.shards))
        self.meeting = Meeting(self.world, self.shards, model)
        objective = choose_objective(self.config, model)
        self.path = choose_path(self.meeting, self.kernels, objective)
        return model

    def _new_sampler(self, start: Parameters | None, seed: int) -> ShardSampler:
        def progress(done: int, total: int) -> None:
            self.report(Stage.FILLING, done, total)

        given = self.graph, self.config, self.device, seed, self.kernels
        return ShardSampler(self.path, *given, progress=progress)

    def _new_learner(self) -> Learner:
        return self.path.learner(self._learning())

    def epoch(self, epoch: int) -> Record:
        """Pass over the training triples; the record also has what the ranks sent to each other."""
        self.world.take_traffic()
        record = super().epoch(epoch)
        return record | {"sent": self.world.take_traffic()}

    def _ranks(self, split: str, sampled: dict[str, Any]) -> dict[Side, Ranks]:
        if split not in self.shard_queries:
            triples = self.graph.split(split)
            self.shard_queries[split] = ShardQueries(self.graph, triples, self.meeting)
        progress = partial(self.report, Stage(split))
        return rank_in_shards(self.shard_queries[split], self.kernels, progress)

    def plan(self, why: str = "") -> str:
        world = f"{self.world.size} processes by {self.world.backend}"
        rows = f"{len(self.shards):,} of {self.shards.entities:,} entities here"
        sent = sum(self.traffic().bytes_of_triple().values())
        return f"{world}; {rows}; about {sent:,.0f} bytes a triple; {self.path.name} kernels"

    def traffic(self, keys: float = 2.0) -> Training:
        """Return what says how much this training sends; ``keys``: refreshed for each triple."""
        config, tables = self.config, self.model.named_parameters()
        softmax, cache = self.objective == "softmax", self.sampler.cache
        return Training(
            self.world.size,
            self.model.entity.shape[1],
            config.batch_size,
            sum(table.numel() for name, table in tables if not is_sharded(name)),
            negatives=self.sampler.count,
            n1=0 if cache is None else config.cache.n1,
            n2=config.cache.n2,
            keys=keys,
            strata=config.cache.strata,
            tail=config.tail if softmax else 0,
            compiled=self.path.name != "plain",
        )


class ShardBest(Best):
    """Keeps the best parameters in the run folder, which all processes can read."""

    def __init__(self, model: Model, meeting: Meeting) -> None:
        super().__init__(model)
        self.shards, self.world = meeting.shards, meeting.world

    def keep(self, epoch: int) -> None:
        self.kept = True
        whole = gather(self.model, self.shards, self.world)
        if self.world.leads and self.folder is not None:
            self.folder.save_model(whole, epoch)

    def take(self) -> None:
        self.world.wait()  # until the file is written
        assert self.folder is not None
        self.model.load_state_dict(take_own(self.folder.read_model()[0], self.shards))
        self.world.wait()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Keep nothing in memory: the file of a checkpoint has its best parameters."""
