"""Trains a model on a graph, or goes on with a training that was interrupted."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import Diverged, UserError, flag, user_path
from nscaching.evaluation.chunks import is_shortage
from nscaching.files import CannotWriteError
from nscaching.kernels import choose_kernels
from nscaching.kernels.dispatch import choose_device
from nscaching.models import MODELS
from nscaching.probes import ProbeConfig
from nscaching.probes.files import Snapshots, read_scores
from nscaching.registry import Registry
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import Record, RunFolder, resume_command
from nscaching.runs.layout import MODEL
from nscaching.runs.run import Run
from nscaching.runs.settings import CONFIG, read_probes, read_record
from nscaching.runs.start import warm_start
from nscaching.samplers import SAMPLERS
from nscaching.training import memory
from nscaching.training.objective import penalty
from nscaching.training.recorder import CHECKPOINT_SECONDS, Recording
from nscaching.training.trainer import Progress, Trainer

__all__ = ["differences", "resume", "train"]

# The settings that name a class, or are one in Python.
NAMED: dict[str, Registry[Any]] = {"model": MODELS, "sampler": SAMPLERS, "generator": MODELS}


def train(
    graph: KnowledgeGraph,
    config: TrainConfig | None = None,
    *,
    probes: ProbeConfig | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    checkpoints: str | Path | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    begin: Callable[[list[Record]], None] | None = None,
    observe: Callable[[Record], None] | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    say: Callable[[str], None] = warnings.warn,
    **settings: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Run:
    """Train a model on a graph.

    ``settings`` are the fields of ``TrainConfig``, changed from ``config`` or else from the
    defaults: ``train(graph, model="TransE", sampler="nscaching", epochs=100, seed=1)``. ``model``,
    ``sampler`` and ``generator`` may also be classes. With
    ``out`` the run folder is written while training goes on, with a checkpoint every so many
    seconds (0: none) from which ``resume`` goes on. Without, ``checkpoints`` may name a folder for
    them alone: where it has some, the same call goes on from them, and ``begin`` hears the records
    of before (they stay when it is done). ``probes`` says what else is measured; ``observe`` hears
    every record, ``progress`` every step, ``announce`` which kernels run and why. ``stop`` is asked
    after every step: True writes a checkpoint and raises ``Stopped``. ``say`` hears when no
    checkpoint can be written.
    """
    config = _changed(config or TrainConfig(), settings)
    folder = None if out is None else RunFolder(out)
    if folder is not None:
        folder.check_free(overwrite)
    alone = None if checkpoints is None else Checkpoints(user_path(checkpoints))
    if alone is not None and (folder is not None or (probes is not None and probes.on)):
        raise UserError("checkpoints alone go with no run folder, which has its own, nor probes")
    start = _start(graph, config)
    config = _absolute_starts(config)
    threads, lock = torch.get_num_threads(), None
    try:
        if alone is not None:
            lock = alone.lock()
        snapshots = 0 if probes is None else len(probes.snapshots)
        memory.check(graph, config, None if folder is None else folder.path, snapshots)
        trainer = Trainer(graph, config, start, progress, probes)
        run = Run(graph, config, trainer.model, probes=probes or ProbeConfig())
        run.record = _record(trainer)
        if announce is not None:
            announce(trainer.plan())
        recording = Recording(run, trainer, folder, checkpoint_every, stop, observe, say, alone)
        if folder is not None:
            folder.create(graph, config, overwrite, run.record, probes)
        elif alone is not None:
            recording.restore(alone.newest(say, needed=False))
            if begin is not None:
                begin(run.history)
        return _train(recording)
    except Exception as error:
        if folder is not None:
            folder.discard()
        if is_shortage(error):
            raise UserError(memory.advice(graph, config)) from error
        raise
    finally:
        torch.set_num_threads(threads)
        if folder is not None:
            folder.release()
        if lock is not None:
            lock.release()


def _changed(config: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    """Return the settings with some of them changed, and all names as they are written here."""
    classes = {
        name: known.canonical(settings[name])
        for name, known in NAMED.items()
        if isinstance(settings.get(name), type)
    }
    config = TrainConfig.from_dict({**config.to_dict(), **settings, **classes})
    names: dict[str, Any] = {
        name: known.canonical(getattr(config, name)) for name, known in NAMED.items()
    }
    return dataclasses.replace(config, **names)


def _record(trainer: Trainer) -> dict[str, Any]:
    """Return what else is worth knowing of a training."""
    return {
        "device": trainer.device.type,
        "threads": torch.get_num_threads(),
        "kernels": trainer.kernels.name,
        "penalty": penalty(trainer.config, trainer.model),
    }


def resume(
    path: str | Path,
    *,
    epochs: int | None = None,
    trust: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    begin: Callable[[list[Record]], None] | None = None,
    observe: Callable[[Record], None] | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    say: Callable[[str], None] = warnings.warn,
    **place: Any,  # noqa: ANN401  (device, kernels, threads)
) -> Run:
    """Go on with the training of a run folder where it was interrupted.

    Everything comes from the folder; ``device``, ``kernels`` and ``threads`` may be other than they
    were, and ``epochs`` more, until the last of them is trained. A folder that names code from
    outside the package is refused, unless ``trust`` allows to run that code. ``begin`` hears the
    records of before; ``say`` also what is wrong with a checkpoint, and what keeps the run from
    coming out as it would have; the rest is as in ``train``.
    """
    folder = RunFolder(path)
    threads = torch.get_num_threads()
    try:
        folder.reopen()
        source, before = folder.read_config(trust)
        if folder.finished:
            folder.close()
            raise UserError(
                f"{folder.path} is finished: there is nothing to go on with; to train more from "
                f"its parameters, start another run with {flag('pretrain')} {folder.path}"
            )
        before = _with_epochs(before, epochs, folder.path)
        config = TrainConfig.from_dict({**before.to_dict(), **place})
        record, probes = read_record(folder.path / CONFIG), read_probes(folder.path / CONFIG)
        graph = folder.read_graph(source)
        for difference in differences(record, graph, config):
            say(f"{folder.path} will not come out as it would have: its {difference}")
        state = folder.checkpoints.newest(say)
        start = None
        if state is None:
            start = _start(graph, config)
        else:  # which needs no more than the checkpoint
            config = dataclasses.replace(config, generator_pretrain="")
        trainer = Trainer(graph, config, start, progress, probes)
        run = Run(graph, before, trainer.model, probes=probes, record=record)
        recording = Recording(run, trainer, folder, checkpoint_every, stop, observe, say)
        recording.restore(state)
        if epochs is not None:
            folder.change_config(graph, before, record, probes)
        run.history, run.scores = folder.read_history(), read_scores(folder.path)
        if begin is not None:
            begin(run.history)
        if announce is not None:
            announce(recording.whence())
            announce(trainer.plan())
        return _train(recording)
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        more = "free some, or go on where there is more"
        raise UserError(f"{folder.path}: not enough memory to go on: {more}") from error
    finally:
        torch.set_num_threads(threads)
        folder.release()


def _train(recording: Recording) -> Run:
    """Let a trainer do its work, and write what a finished run has."""
    run, trainer, folder = recording.run, recording.trainer, recording.folder
    try:
        trainer.train(recording.hear, recording.find)
        recording.settle()
        run.best_epoch, run.sampler_state = trainer.best_epoch, trainer.sampler.state()
        run.test_ranks = trainer.ranks.get("test")
        run.snapshots = recording.snapshots
        if folder is not None:
            run.finish(folder)
            run.snapshots = Snapshots(folder.path)
    except Diverged as error:
        raise Diverged(f"{error}; {_last_good(trainer, folder)}") from None
    except CannotWriteError as error:
        if folder is None or not folder.checkpoints.files():
            raise
        raise UserError(f"{error}; to go on later: {resume_command(folder.path)}") from error
    finally:
        recording.close()
    return run


def _last_good(trainer: Trainer, folder: RunFolder | None) -> str:
    """Say where the parameters are that were best before a training went wrong."""
    if folder is None or not trainer.best_epoch:
        return "no parameters were kept before that"
    if folder.path != folder.target:
        return f"the run in {folder.target} is as it was"
    return f"the best before, of epoch {trainer.best_epoch}, are in {folder.path / MODEL}"


def differences(record: dict[str, Any], graph: KnowledgeGraph, config: TrainConfig) -> list[str]:
    """Say what keeps a run of these settings from coming out as the recorded one did."""
    device = choose_device(config.device)
    here = {
        "data_fingerprint": graph.fingerprint,
        "device": device.type,
        "threads": config.threads or torch.get_num_threads(),
        "kernels": choose_kernels(config.kernels, device).name,
        "torch": torch.__version__,
    }
    return [
        f"{name.replace('_', ' ')} was {record[name]} and is {value}"
        for name, value in here.items()
        if record.get(name, value) != value
    ]


def _with_epochs(config: TrainConfig, epochs: int | None, path: Path) -> TrainConfig:
    if epochs is not None and epochs < config.epochs:
        raise UserError(
            f"{flag('epochs')} {epochs}: {path} was begun with {config.epochs}, give more"
        )
    return config if epochs is None else dataclasses.replace(config, epochs=epochs)


def _start(graph: KnowledgeGraph, config: TrainConfig) -> dict[str, Tensor] | None:
    if not config.pretrain:
        return None
    return warm_start(flag("pretrain"), config.pretrain, graph, config.model, config.dim)


def _absolute_starts(config: TrainConfig) -> TrainConfig:
    """Return the settings with absolute paths, so that they repeat the run from anywhere."""
    starts: dict[str, Any] = {
        name: str(user_path(path).resolve())
        for name in ("pretrain", "generator_pretrain")
        if (path := getattr(config, name))
    }
    return dataclasses.replace(config, **starts)
