"""Trains a model by several processes of torchrun together, or resumes such a training."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.models import MODELS
from nscaching.probes import ProbeConfig
from nscaching.runs.folder import RunFolder
from nscaching.runs.run import Run
from nscaching.runs.settings import CONFIG, read_record, write_config
from nscaching.runs.shard_checkpoints import newest_last
from nscaching.samplers.objective import penalty
from nscaching.sharded.sampler import check_shardable
from nscaching.sharded.world import World
from nscaching.training.listener import Listener
from nscaching.training.shard_recorder import ShardRecorder
from nscaching.training.shard_trainer import ShardTrainer
from nscaching.training.train import (
    CHECKPOINT_SECONDS,
    absolute_starts,
    check_resumable,
    differences,
    place,
    read_starts,
)


def train_in_shards(
    world: World,
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: Path,
    *,
    listener: Listener | None = None,
    overwrite: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Run | None:
    """Train; the leading process returns the run, all others None.

    All processes need to see the run folder.
    """
    folder, listener = RunFolder(out), listener or Listener()
    check_shardable(config, MODELS.get(config.model).form)
    config = _with_strata(world, config)
    _check_alike(world, graph, config)
    with ExitStack() as held, torch_settings(config.threads):
        held.callback(folder.release)
        if world.leads:
            folder.check_free(overwrite)
        starts, config = read_starts(graph, config), absolute_starts(config)
        trainer = ShardTrainer(world, graph, config, starts, listener.progress)
        record = {**place(config), "penalty": penalty(config, trainer.model)}
        record["processes"] = world.size
        run = Run(graph, config, trainer.model, record=record)
        if world.leads:
            folder.create(graph, config, overwrite, record)
        folder.path = world.gather(folder.path)[0]
        recorder = ShardRecorder(run, trainer, listener, checkpoint_every, folder)
        return _finish(world, recorder, trainer)


def resume_in_shards(
    world: World,
    path: str | Path,
    *,
    listener: Listener | None = None,
    epochs: int | None = None,
    trust: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    **place_now: Any,  # noqa: ANN401  (device, kernels, threads)
) -> Run | None:
    """Resume a run that any number of processes began, from its newest checkpoint."""
    folder, listener = RunFolder(path), listener or Listener()
    with ExitStack() as held:
        if world.leads:
            held.callback(folder.release)
            folder.reopen()
        world.wait()
        source, before = folder.read_config(trust)
        if folder.checkpoints.files() and not newest_last(folder.checkpoints.folder):
            raise UserError(f"{folder.path} was begun by one process: resume it without torchrun")
        check_resumable(folder, before, epochs)
        before = before.changed(epochs=epochs or before.epochs)
        config = before.changed(**{n: v for n, v in place_now.items() if v is not None})
        check_shardable(config, MODELS.get(config.model).form)
        _with_strata(world, config)
        held.enter_context(torch_settings(config.threads))
        record, graph = read_record(folder.path / CONFIG), folder.read_graph(source)
        _check_alike(world, graph, config)
        for difference in differences(record, graph, config):
            reason = f"will differ from an uninterrupted run: its {difference}"
            listener.note(f"{folder.path} {reason}")
        trainer = ShardTrainer(world, graph, config, (None, None), listener.progress)
        run = Run(graph, before, trainer.model, record=record)
        recorder = ShardRecorder(run, trainer, listener, checkpoint_every, folder)
        state = recorder.shard_checkpoints.newest(listener.note)
        if state is not None:
            recorder.restore(state, folder.path)
        elif world.leads:
            folder.cut({}, -1)
        if epochs is not None and world.leads:
            write_config(folder.path / CONFIG, graph, before, record, ProbeConfig())
        world.wait()
        if world.leads:
            run.history = folder.read_history()
        from_here = f"epoch {trainer.trained + 1}" if state is not None else "the start"
        listener.announce(f"{folder.path}: {world.size} processes resume at {from_here}")
        return _finish(world, recorder, trainer)


def _finish(world: World, recorder: ShardRecorder, trainer: ShardTrainer) -> Run | None:
    listener = recorder.listener
    listener.begin(recorder.run.history)
    listener.announce(trainer.plan())
    run = recorder.finish()
    return run if world.leads else None


def _with_strata(world: World, config: TrainConfig) -> TrainConfig:
    """Return the settings with as many strata as there are processes, if nobody says how many."""
    strata = config.cache.strata
    if config.cache.exchange == "scores":
        return config
    if strata % world.size:
        few = f"no multiple of the {world.size} processes"
        raise UserError(f"{flag('strata')} {strata}: {few}")
    return config.changed(strata=strata or world.size)


def _check_alike(world: World, graph: KnowledgeGraph, config: TrainConfig) -> None:
    """Refuse processes that would not train the same."""
    settings = config.to_dict()
    mine = {
        "nscaching": __version__,
        "torch": torch.__version__,
        "data": f"{graph.name}, {graph.fingerprint}",
        **{flag(name): settings[name] for name in settings if name not in ("device", "threads")},
    }
    for rank, theirs in enumerate(world.gather(mine)):
        for what, value in theirs.items():
            if value != mine[what]:
                raise UserError(f"process {rank} has another {what}: {value}, here {mine[what]}")
