"""Trains a model on a graph, or resumes a training run that was interrupted."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, user_path
from nscaching.evaluation.chunks import is_shortage
from nscaching.kernels import choose_device, choose_kernels
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.probes import ProbeConfig
from nscaching.probes.files import read_scores
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import RunFolder
from nscaching.runs.parameters import warm_start
from nscaching.runs.run import Run
from nscaching.runs.settings import CONFIG, read_probes, read_record, write_config
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import penalty
from nscaching.training import fitting, memory
from nscaching.training.defaults import settings_for, with_settings
from nscaching.training.listener import Listener
from nscaching.training.recorder import Recorder
from nscaching.training.trainer import Parameters, Starts, Trainer

CHECKPOINT_SECONDS = 60.0  # between checkpoints, unless the caller asks for others


def train(
    graph: KnowledgeGraph,
    config: TrainConfig | None = None,
    *,
    progress: bool = False,
    listener: Listener | None = None,
    probes: ProbeConfig | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    checkpoints: str | Path | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    **settings: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Run:
    """Train a model on a graph.

    ``settings`` are fields of ``TrainConfig``, such as ``model="TransE", seed=1``, changed from
    ``config``; without ``config`` all others are chosen for the graph. ``model``, ``sampler`` and
    ``generator`` may also be classes. ``progress`` shows a bar with the time left, in a terminal or
    a notebook. ``listener`` has the callbacks of the run and may stop the run; ``probes`` says what
    else is measured.

    With ``out`` the run folder is written during training, with a checkpoint every
    ``checkpoint_every`` seconds (0: none) for ``resume``. Without ``out``, ``checkpoints`` may name
    a folder for checkpoints alone: the same call resumes from the newest of them. They stay there
    when the run is finished.
    """
    config = settings_for(graph, **settings) if config is None else with_settings(config, settings)
    folder = None if out is None else RunFolder(out)
    if folder is not None:
        folder.check_free(overwrite)
    alone = None if checkpoints is None else Checkpoints(user_path(checkpoints))
    probes = probes or ProbeConfig()
    if alone is not None and (folder is not None or probes.on):
        raise UserError("checkpoints alone go with no run folder, which has its own, nor probes")
    check_seconds(checkpoint_every)
    starts, config = read_starts(graph, config), absolute_starts(config)
    with ExitStack() as held, torch_settings(config.threads):
        listener = _listener(listener, progress, config, held)
        if folder is not None:
            held.callback(folder.release)
        if alone is not None:
            held.callback(alone.lock().release)
        try:
            path = None if folder is None else folder.path
            asked = path, len(probes.snapshots), memory.checkpoints_of(checkpoint_every)
            placed, why = fitting.place_caches(graph, config, *asked)
            fitting.check(memory.Statement(graph, placed, *asked))
            trainer = Trainer(graph, placed, starts, listener.progress, probes, existing(path))
            record = {**place(config), "penalty": penalty(config, trainer.model)}
            run = Run(graph, config, trainer.model, probes=probes, record=record)
            recorder = Recorder(run, trainer, listener, checkpoint_every, folder, alone)
            if alone is not None and (state := alone.newest(listener.note, needed=False)):
                recorder.restore(state, alone.folder)
            listener.begin(run.history)
            listener.announce(trainer.plan(why))
            if folder is not None:
                folder.create(graph, config, overwrite, record, probes)
            return recorder.finish()
        except Exception as error:
            if folder is not None:
                folder.discard()
            if is_shortage(error):
                raise UserError(fitting.advice(graph, config)) from error
            raise


def resume(
    path: str | Path,
    *,
    progress: bool = False,
    listener: Listener | None = None,
    epochs: int | None = None,
    trust: bool = False,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    device: str | None = None,
    kernels: str | None = None,
    threads: int | None = None,
) -> Run:
    """Resume the training run of a folder where it was interrupted.

    Everything comes from the folder. ``device``, ``kernels`` and ``threads`` may differ from
    before, and ``epochs`` may be more, until the last epoch is trained. ``listener.note`` also
    receives what is wrong with a checkpoint, and why the run will differ from an uninterrupted one.
    A folder that names code from outside the package is refused, unless ``trust`` allows that code
    to run.
    """
    check_seconds(checkpoint_every)
    folder = RunFolder(path)
    with ExitStack() as held:
        held.callback(folder.release)
        folder.reopen()
        source, before = folder.read_config(trust)
        check_resumable(folder, before, epochs)
        before = before.changed(epochs=epochs or before.epochs)
        here = {"device": device, "kernels": kernels, "threads": threads}
        config = before.changed(**{name: v for name, v in here.items() if v is not None})
        record, probes = read_record(folder.path / CONFIG), read_probes(folder.path / CONFIG)
        held.enter_context(torch_settings(config.threads))
        listener = _listener(listener, progress, config, held)
        try:
            graph = folder.read_graph(source)
            for difference in differences(record, graph, config):
                reason = f"will differ from an uninterrupted run: its {difference}"
                listener.note(f"{folder.path} {reason}")
            state = folder.checkpoints.newest(listener.note)
            # A checkpoint holds the parameters: what the run started from may be gone.
            starts = read_starts(graph, config) if state is None else (None, None)
            placed, why = fitting.place_caches(graph, config, folder.path, len(probes.snapshots))
            trainer = Trainer(graph, placed, starts, listener.progress, probes, folder.path)
            run = Run(graph, before, trainer.model, probes=probes, record=record)
            recorder = Recorder(run, trainer, listener, checkpoint_every, folder)
            if state is None:
                folder.cut({}, -1)
            else:
                recorder.restore(state, folder.path)
            if epochs is not None:
                write_config(folder.path / CONFIG, graph, before, record, probes)
            run.history, run.scores = folder.read_history(), read_scores(folder.path)
            listener.begin(run.history)
            listener.announce(_resume_point(folder, trainer))
            listener.announce(trainer.plan(why))
            return recorder.finish()
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            more = "free some, or resume where there is more"
            raise UserError(f"{folder.path}: not enough memory to resume: {more}") from error


def _listener(
    given: Listener | None, progress: bool, config: TrainConfig, held: ExitStack
) -> Listener:
    """Return the listener of a run: the given one, or a progress bar that ``held`` ends."""
    if not progress:
        return given or Listener()
    if given is not None:
        raise UserError("progress=True shows a bar by a listener of its own: give one of the two")
    from nscaching.training.display import TrainingDisplay  # here: training needs no rich

    return held.enter_context(TrainingDisplay(f"{config.model} {config.sampler}", config))


def cut_short(
    graph: KnowledgeGraph,
    config: TrainConfig,
    checkpoints: str | Path,
    listener: Listener | None = None,
) -> Run | None:
    """Return the run that ``train`` stopped, as if its last whole epoch had been the last one.

    ``checkpoints`` is the folder that ``train`` was given; None: it holds no whole checkpoint. The
    validation triples are ranked if they never were, then the test triples.
    """
    listener, kept = listener or Listener(), Checkpoints(user_path(checkpoints))
    with torch_settings(config.threads):
        if (state := kept.newest(listener.note, needed=False)) is None:
            return None
        trainer = Trainer(graph, config, report=listener.progress)
        record = {**place(config), "penalty": penalty(config, trainer.model)}
        run = Run(graph, config, trainer.model, record=record)
        Recorder(run, trainer, listener, 0.0, alone=kept).restore(state, kept.folder)
        trainer.report = listener.progress  # no more checkpoints: the best parameters are taken
        if trainer.validates and not trainer.best.kept:
            run.history.append({**trainer.rank("valid", trainer.trained), "best": True})
        run.history += trainer.end()
        run.config = config.changed(epochs=max(1, trainer.trained))
        run.best_epoch, run.sampler_state = trainer.best_epoch, trainer.sampler.state()
        run.test_ranks = trainer.ranks.get("test")
    return run


def _resume_point(folder: RunFolder, trainer: Trainer) -> str:
    if not (whole := folder.checkpoints.whole):
        return f"{folder.path} has no checkpoint yet: training starts at epoch 1"
    if trainer.over:
        return f"{whole[-1]}: all epochs are done, what is left is to rank and to finish"
    done = f"{100 * trainer.meter.triples // len(trainer.triples)} %"
    return f"{whole[-1]}: resumes in epoch {trainer.trained + 1}, of which {done} is done"


def differences(record: dict[str, Any], graph: KnowledgeGraph, config: TrainConfig) -> list[str]:
    """Say what differs from the recorded run, so that the same seed gives another result."""
    here = {"data_fingerprint": graph.fingerprint, **place(config), "torch": torch.__version__}
    return [
        f"{name.replace('_', ' ')} was {record[name]} and is {value}"
        for name, value in here.items()
        if record.get(name, value) != value
    ]


def place(config: TrainConfig) -> dict[str, Any]:
    device = choose_device(config.device)
    threads = config.threads or torch.get_num_threads()
    kernels = choose_kernels(config.kernels, device).name
    return {"device": device.type, "threads": threads, "kernels": kernels}


def existing(path: Path | None) -> Path | None:
    """Return a folder that will hold another, or the nearest one above that exists."""
    if path is None:
        return None
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def check_seconds(every: float) -> None:
    if not 0 <= every < float("inf"):
        raise UserError(f"{flag('checkpoint_every')} must be zero or more seconds, not {every}")


def check_resumable(folder: RunFolder, config: TrainConfig, epochs: int | None) -> None:
    if folder.finished:
        folder.close()
        raise UserError(
            f"{folder.path} is finished: there is nothing to resume; to train more from "
            f"its parameters, start another run with {flag('pretrain')} {folder.path}"
        )
    if epochs is not None and epochs < config.epochs:
        begun = f"{folder.path} was begun with {config.epochs}, give more"
        raise UserError(f"{flag('epochs')} {epochs}: {begun}")


def read_starts(graph: KnowledgeGraph, config: TrainConfig) -> Starts:
    def read(name: str, path: str, model: str, reciprocal: bool) -> Parameters | None:
        asked = graph, model, config.dim, reciprocal
        return warm_start(flag(name), path, *asked) if path else None

    generated = SAMPLERS.get(config.sampler).has_generator
    path = config.gan.generator_pretrain if generated else ""
    return (
        read("pretrain", config.pretrain, config.model, config.reciprocal),
        read("generator_pretrain", path, config.gan.generator, False),
    )


def absolute_starts(config: TrainConfig) -> TrainConfig:
    """Return the configuration with absolute paths, so that it repeats the run from anywhere."""
    starts = {"pretrain": config.pretrain, "generator_pretrain": config.gan.generator_pretrain}
    absolute = {name: str(user_path(path).resolve()) for name, path in starts.items() if path}
    return config.changed(**absolute)
