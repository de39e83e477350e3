"""Trains a model by several processes of torchrun together, or resumes such a training."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, counted, flag
from nscaching.kernels import choose_device, choose_kernels
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.kernels.shards import Shards
from nscaching.models import MODELS
from nscaching.probes import ProbeConfig
from nscaching.runs.checkpoints import sharded_in
from nscaching.runs.folder import RunFolder
from nscaching.runs.run import Run
from nscaching.runs.settings import CONFIG, read_probes, read_record, write_config
from nscaching.runs.shard_checkpoints import ShardCheckpoints
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
    check_seconds,
    differences,
    place,
    read_starts,
)

PLACE = ("device", "kernels", "threads")  # settings that may differ where they come to the same


def train_in_shards(
    world: World,
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: Path,
    *,
    listener: Listener | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Run | None:
    """Train; the leading process returns the run, all others None.

    All processes need to see the run folder.
    """
    folder, listener = RunFolder(out), listener or Listener()
    check_seconds(checkpoint_every)
    check_shardable(config, MODELS.get(config.model).form)
    config = _with_strata(world, config)
    _check_alike(world, graph, config)
    with ExitStack() as held, torch_settings(config.threads):
        held.callback(folder.release)
        if world.leads:
            folder.check_free(overwrite=False)
        starts, config = read_starts(graph, config), absolute_starts(config)
        trainer = ShardTrainer(world, graph, config, starts, listener.progress)
        record = {**place(config), "penalty": penalty(config, trainer.model)}
        record["processes"] = world.size
        run = Run(graph, config, trainer.model, record=record)
        if world.leads:
            world.remember_run(folder.path)
            folder.create(graph, config, record=record)
        world.wait()
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
        check_seconds(checkpoint_every)
        if world.leads:
            held.callback(folder.release)
            folder.reopen()
            check_resumable(folder, folder.read_config(trust)[1], epochs)
        world.wait()
        source, before = folder.read_config(trust)
        if read_probes(folder.path / CONFIG).on:
            raise UserError(f"{folder.path} has probes, which one process measures")
        if folder.checkpoints.files() and not sharded_in(folder.checkpoints.folder):
            raise UserError(f"{folder.path} was begun by one process: resume it without torchrun")
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
        shards = Shards(len(graph.entities), world.size, world.rank)
        state = ShardCheckpoints(folder.path, world, shards).newest(listener.note)
        starts = read_starts(graph, config) if state is None else (None, None)
        trainer = ShardTrainer(world, graph, config, starts, listener.progress)
        run = Run(graph, before, trainer.model, record=record)
        recorder = ShardRecorder(run, trainer, listener, checkpoint_every, folder)
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
        processes = counted(world.size, "process resumes", "processes resume")
        listener.announce(f"{folder.path}: {processes} at {from_here}")
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
    settings, device = config.to_dict(), choose_device(config.device)
    mine = {
        "nscaching": __version__,
        "torch": torch.__version__,
        "device": device.type,
        "kernels": choose_kernels(config.kernels, device).name,
        "backend": world.backend,
        "data": f"{graph.name}, {graph.fingerprint}",
        **{flag(name): settings[name] for name in settings if name not in PLACE},
    }
    for rank, theirs in enumerate(world.gather(mine)):
        for what, value in theirs.items():
            if value != mine[what]:
                raise UserError(f"process {rank} has another {what}: {value}, here {mine[what]}")
