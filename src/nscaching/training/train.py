"""Trains a model on a graph, or resumes a training run that was interrupted."""

from pathlib import Path
from typing import Any

import torch

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
from nscaching.runs.folder import RunFolder, resume_command
from nscaching.runs.layout import MODEL
from nscaching.runs.run import Run
from nscaching.runs.settings import CONFIG, read_probes, read_record, write_config
from nscaching.runs.start import warm_start
from nscaching.samplers import SAMPLERS
from nscaching.training import memory
from nscaching.training.listener import Listener
from nscaching.training.objective import penalty
from nscaching.training.recorder import Recorder
from nscaching.training.session import CHECKPOINT_SECONDS, Session, torch_settings
from nscaching.training.trainer import Starts, Trainer

# The settings that name a class, or are one in Python.
NAMED: dict[str, Registry[Any]] = {"model": MODELS, "sampler": SAMPLERS, "generator": MODELS}


def train(
    graph: KnowledgeGraph,
    config: TrainConfig | None = None,
    *,
    listener: Listener | None = None,
    probes: ProbeConfig | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    checkpoints: str | Path | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    **settings: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Run:
    """Train a model on a graph.

    ``settings`` are fields of ``TrainConfig``, changed from ``config`` or else from the defaults:
    ``train(graph, model="TransE", sampler="nscaching", epochs=100, seed=1)``. ``model``,
    ``sampler`` and ``generator`` may also be classes. ``listener`` has the callbacks of the run and
    may stop the run; ``probes`` says what else is measured.

    With ``out`` the run folder is written during training, with a checkpoint every
    ``checkpoint_every`` seconds (0: none) for ``resume``. Without ``out``, ``checkpoints`` may name
    a folder for checkpoints alone: the same call resumes from the newest of them. They stay there
    when the run is finished.
    """
    config = _changed(config or TrainConfig(), settings)
    folder = None if out is None else RunFolder(out)
    if folder is not None:
        folder.check_free(overwrite)
    alone = None if checkpoints is None else Checkpoints(user_path(checkpoints))
    probes = probes or ProbeConfig()
    if alone is not None and (folder is not None or probes.on):
        raise UserError("checkpoints alone go with no run folder, which has its own, nor probes")
    session = Session(listener or Listener(), checkpoint_every, folder, alone)
    starts, config = _read_starts(graph, config), _absolute_starts(config)
    with session.held(), torch_settings(config.threads):
        try:
            path = None if folder is None else folder.path
            memory.check(graph, config, path, len(probes.snapshots))
            trainer = Trainer(graph, config, starts, session.listener.progress, probes)
            run = Run(graph, config, trainer.model, probes=probes, record=_record(trainer))
            recorder = Recorder(session, run, trainer)
            if alone is not None:
                recorder.restore(alone.newest(session.listener.note, needed=False))
            session.listener.begin(run.history)
            session.listener.announce(trainer.plan())
            if folder is not None:
                folder.create(graph, config, overwrite, run.record, probes)
            return _finish(recorder)
        except Exception as error:
            if folder is not None:
                folder.discard()
            if is_shortage(error):
                raise UserError(memory.advice(graph, config)) from error
            raise


def resume(
    path: str | Path,
    *,
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
    folder = RunFolder(path)
    session = Session(listener or Listener(), checkpoint_every, folder)
    with session.held():
        folder.reopen()
        source, before = folder.read_config(trust)
        _check_unfinished(folder)
        before = _with_epochs(before, epochs, folder.path)
        place = {"device": device, "kernels": kernels, "threads": threads}
        given = {name: value for name, value in place.items() if value is not None}
        config = TrainConfig.from_dict(before.to_dict() | given)
        record, probes = read_record(folder.path / CONFIG), read_probes(folder.path / CONFIG)
        try:
            graph = folder.read_graph(source)
            for difference in differences(record, graph, config):
                reason = f"will differ from an uninterrupted run: its {difference}"
                session.listener.note(f"{folder.path} {reason}")
            state = folder.checkpoints.newest(session.listener.note)
            # A checkpoint holds the parameters: what the run started from may be gone.
            starts = _read_starts(graph, config) if state is None else Starts()
            with torch_settings(config.threads):
                trainer = Trainer(graph, config, starts, session.listener.progress, probes)
                run = Run(graph, before, trainer.model, probes=probes, record=record)
                recorder = Recorder(session, run, trainer)
                recorder.restore(state)
                if epochs is not None:
                    write_config(folder.path / CONFIG, graph, before, record, probes)
                run.history, run.scores = folder.read_history(), read_scores(folder.path)
                session.listener.begin(run.history)
                session.listener.announce(recorder.resume_point())
                session.listener.announce(trainer.plan())
                return _finish(recorder)
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            more = "free some, or resume where there is more"
            raise UserError(f"{folder.path}: not enough memory to resume: {more}") from error


def _finish(recorder: Recorder) -> Run:
    """Train to the end, and write the files of a finished run."""
    run, trainer, folder = recorder.run, recorder.trainer, recorder.session.folder
    try:
        recorder.follow()
        run.best_epoch, run.sampler_state = trainer.best_epoch, trainer.sampler.state()
        run.test_ranks = trainer.ranks.get("test")
        run.snapshots = recorder.snapshots
        if folder is not None:
            run.finish(folder)
            run.snapshots = Snapshots(folder.path)
    except Diverged as error:
        raise Diverged(f"{error}; {_last_good(trainer, folder)}") from None
    except CannotWriteError as error:
        if folder is None or not folder.checkpoints.files():
            raise
        raise UserError(f"{error}; to resume later: {resume_command(folder.path)}") from error
    finally:
        recorder.close()
    return run


def _last_good(trainer: Trainer, folder: RunFolder | None) -> str:
    """Say where the best parameters are from before the run diverged."""
    if folder is None or not trainer.best_epoch:
        return "no parameters were kept before that"
    if folder.path != folder.target:
        return f"the run in {folder.target} is as it was"
    return f"the best before, of epoch {trainer.best_epoch}, are in {folder.path / MODEL}"


def differences(record: dict[str, Any], graph: KnowledgeGraph, config: TrainConfig) -> list[str]:
    """Say what differs from the recorded run, so that the same seed gives another result."""
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


def _record(trainer: Trainer) -> dict[str, Any]:
    """Return what ``differences`` compares, and the penalty that was chosen."""
    return {
        "device": trainer.device.type,
        "threads": torch.get_num_threads(),
        "kernels": trainer.kernels.name,
        "penalty": penalty(trainer.config, trainer.model),
    }


def _changed(config: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    """Return the configuration with some settings changed, and names in their usual spelling."""
    classes = {
        name: known.canonical(settings[name])
        for name, known in NAMED.items()
        if isinstance(settings.get(name), type)
    }
    config = TrainConfig.from_dict({**config.to_dict(), **settings, **classes})
    names = config.flat()
    return config.changed(**{name: known.canonical(names[name]) for name, known in NAMED.items()})


def _with_epochs(config: TrainConfig, epochs: int | None, path: Path) -> TrainConfig:
    if epochs is not None and epochs < config.epochs:
        raise UserError(
            f"{flag('epochs')} {epochs}: {path} was begun with {config.epochs}, give more"
        )
    return config if epochs is None else config.changed(epochs=epochs)


def _check_unfinished(folder: RunFolder) -> None:
    if folder.finished:
        folder.close()
        raise UserError(
            f"{folder.path} is finished: there is nothing to resume; to train more from "
            f"its parameters, start another run with {flag('pretrain')} {folder.path}"
        )


def _read_starts(graph: KnowledgeGraph, config: TrainConfig) -> Starts:
    """Read the parameters of the runs that model and generator start from."""
    model = generator = None
    if config.pretrain:
        model = warm_start(flag("pretrain"), config.pretrain, graph, config.model, config.dim)
    if config.gan.generator_pretrain and SAMPLERS.get(config.sampler).has_generator:
        name, path = flag("generator_pretrain"), config.gan.generator_pretrain
        generator = warm_start(name, path, graph, config.gan.generator, config.dim)
    return Starts(model, generator)


def _absolute_starts(config: TrainConfig) -> TrainConfig:
    """Return the configuration with absolute paths, so that it repeats the run from anywhere."""
    starts = {"pretrain": config.pretrain, "generator_pretrain": config.gan.generator_pretrain}
    absolute = {name: str(user_path(path).resolve()) for name, path in starts.items() if path}
    return config.changed(**absolute)
