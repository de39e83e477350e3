"""The files of a run. They are written as training goes on, each one whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.evaluation import ranking as evaluation
from nscaching.runs.checkpoints import Checkpoints
from nscaching.config import TrainConfig
from nscaching.errors import UserError, user_path, flag
from nscaching.files import PARTIAL, FolderLock, append_lines, free_path, own, read_lines, read_tensors, save_tensors, sync, writing
from nscaching.data.graph import KnowledgeGraph, Source
from nscaching.registry import outside_code, refuse_outside_code
from nscaching.probes import ProbeConfig
from nscaching.probes.files import SCORES, remove_snapshots
from nscaching.runs.settings import CONFIG, FORMAT, read_record, read_settings, write_config
from nscaching.runs.layout import CACHE, METRICS, MODEL, check_own, has_ended
from nscaching.runs.graph_files import read_graph, write_graph

__all__ = ["Record", "RunFolder", "default_out", "resume_command"]

Record = dict[str, Any]
"""One line of metrics.jsonl: an epoch, or a ranking of a split."""

# What a line of metrics.jsonl has at least: an epoch, or the ranking of a split.
EPOCH_FIGURES = ("epoch", "loss", "seconds")
RANKING_FIGURES = ("epoch", *evaluation.METRICS, "trained_seconds", "seconds")


def resume_command(path: str | Path) -> str:
    """Return the command line that goes on with a run."""
    trust = ""
    with contextlib.suppress(UserError):
        _, config = RunFolder(path).read_config(trust=True)
        trust = " --trust" if outside_code(config.to_dict()) else ""
    return f"nscaching train --resume {shlex.quote(str(path))}{trust}"


class RunFolder:
    """One run's folder on disk; it holds the data too, so that it stands on its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = self.target = user_path(path)
        self.checkpoints = Checkpoints(self.path)
        self.lock: FolderLock | None = None

    def check_free(self, overwrite: bool) -> None:
        """Refuse a path that cannot be made, or exists and is no run that may be overwritten."""
        there = next((p for p in self.path.absolute().parents if p.exists()), Path("/"))
        if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
            reason = f"{there} or its file system is read-only"
            raise UserError(f"{self.path}: cannot write the run folder: {reason}")
        if not self.path.exists() and not self.path.is_symlink():
            return
        if not overwrite:
            interrupted = f", or {flag('resume')} {self.path}" if self.checkpoints.files() else ""
            raise UserError(
                f"{self.path} exists already; choose another {flag('out')}, or say "
                f"{flag('overwrite', 'overwrite=True')}{interrupted}"
            )
        check_own(self.path)
        FolderLock(self.path).release()

    def create(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        overwrite: bool = False,
        record: dict[str, Any] | None = None,
        probes: ProbeConfig | None = None,
    ) -> None:
        """Make the folder with configuration and data; replace an existing run only if told to.

        It gets its name once all that is in it. A run that is to be replaced stays as it is until
        ``finish``: the new one is written beside it. ``record`` holds what else is worth knowing.
        """
        self.check_free(overwrite)
        record = dict(record or {})
        if self.target.exists():
            self.path = free_path(self.target.with_name(self.target.name + PARTIAL))
            self.checkpoints = Checkpoints(self.path)
            record["replaces"] = self.target.name
        new = free_path(self.path.with_name(f"{self.path.name}.{os.getpid()}{PARTIAL}"))
        try:
            new.mkdir(parents=True)
            self.lock = FolderLock(new)
            write_config(new / CONFIG, graph, config, record, probes)
            write_graph(new, graph)
            (new / METRICS).touch()
            new.rename(self.path)
        except BaseException as error:
            shutil.rmtree(new, ignore_errors=True)
            if not isinstance(error, OSError | UnicodeError):  # the latter: not a path of UTF-8
                raise
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path}: cannot write the run folder: {reason}") from error

    def _check_is_run(self) -> None:
        if not self.path.exists():
            raise UserError(f"{self.path} does not exist")
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder: it has no {CONFIG}")

    def reopen(self) -> None:
        """Take hold of the folder of an interrupted run."""
        self._check_is_run()
        if not os.access(self.path, os.W_OK):
            raise UserError(f"cannot write {self.path}: the folder or its file system is read-only")
        self.lock = FolderLock(self.path)
        replaces = read_record(self.path / CONFIG).get("replaces", "")
        if self.path.name.endswith(PARTIAL) and isinstance(replaces, str) and replaces:
            self.target = self.path.with_name(Path(replaces).name)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be done."""
        return has_ended(self.path) and not self.checkpoints.files() and self.path == self.target

    def change_config(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        record: dict[str, Any],
        probes: ProbeConfig,
    ) -> None:
        """Replace the configuration."""
        path, unfinished = self.path / CONFIG, self.path / f"{CONFIG}{PARTIAL}"
        with writing(path, unfinished):
            unfinished.unlink(missing_ok=True)  # a link there would lead elsewhere
            write_config(unfinished, graph, config, record, probes)
            os.replace(unfinished, path)  # noqa: PTH105

    def marks(self) -> dict[str, int]:
        """Return how long the growing files are, once what a checkpoint needs is on the disk."""
        if not self.checkpoints.whole:
            self.sync()
        grown = [self.path / name for name in (METRICS, SCORES) if (self.path / name).exists()]
        for file in grown:
            sync(file)
        return {file.name: file.stat().st_size for file in grown}

    def sync(self) -> None:
        """Wait until all files are on the disk."""
        for file in self.path.iterdir():
            if file.is_file():
                sync(file)
        sync(self.path)
        sync(self.path.parent)

    def cut(self, marks: dict[str, int], epoch: int, best: tuple[dict[str, Tensor], int]) -> None:
        """Take back what was written after a checkpoint: lines, snapshots, parameters."""
        for file in (self.path / name for name in (METRICS, SCORES)):
            size, mark = file.stat().st_size if file.exists() else 0, marks.get(file.name, 0)
            if size < mark:
                raise UserError(f"{file} is shorter than when the checkpoint was written")
            if size > mark:
                with writing(file):
                    os.truncate(file, mark)
        remove_snapshots(self.path, epoch)
        if best[0]:
            self.save_model(*best)
        else:
            (self.path / MODEL).unlink(missing_ok=True)

    def finish(self) -> None:
        """Put a run that was written beside an old one into its place."""
        if self.path == self.target:
            return
        old = free_path(self.target.with_name(f"{self.target.name}.replaced{PARTIAL}"))
        if self.target.exists():
            try:
                check_own(self.target)
                FolderLock(self.target).release()
            except UserError as error:
                warnings.warn(f"{error}; the new run is {self.path}", stacklevel=2)
                self.target = self.path
                return
            self.target.rename(old)
        self.path = self.path.rename(self.target)
        self.checkpoints = Checkpoints(self.path)
        shutil.rmtree(old, ignore_errors=True)  # nothing but a run's own files, as was checked

    def close(self) -> None:
        """Remove the checkpoints of a run that has all its files."""
        if self.checkpoints.folder.is_dir():
            self.sync()
            self.checkpoints.remove()

    def release(self) -> None:
        """Let other processes have the folder."""
        if self.lock is not None:
            self.lock.release()

    def discard(self) -> None:
        """Give up a run that was to replace an old one, unless it could go on."""
        if self.path != self.target and not self.checkpoints.files():
            shutil.rmtree(self.path, ignore_errors=True)

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        append_lines(self.path / METRICS, [record])

    def save_model(self, parameters: dict[str, Tensor], epoch: int) -> None:
        """Write the parameters of an epoch."""
        save_tensors(self.path / MODEL, parameters, {"epoch": str(epoch)})

    def save_sampler(self, state: dict[str, Tensor]) -> None:
        """Write what the sampler keeps, if it keeps anything."""
        if state:
            save_tensors(self.path / CACHE, state)

    def read_config(self, trust: bool = False) -> tuple[Source, TrainConfig]:
        """Read the configuration; refuse one that names outside code, unless ``trust`` is given."""
        self._check_is_run()
        own(self.path / CONFIG)
        written = read_record(self.path / CONFIG).get("format", FORMAT)
        if written != FORMAT:
            raise UserError(
                f"{self.path} has format {written!r}, this version of nscaching reads {FORMAT}: "
                "use the version that wrote it"
            )
        source, config = read_settings(own(self.path / CONFIG))
        if not trust:
            refuse_outside_code(self.path / CONFIG, config.to_dict())
        return source, config

    def read_history(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl."""
        return read_lines(self.path / METRICS, _is_record, "metrics")

    def read_model(self) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the epoch they are of."""
        if not (self.path / MODEL).is_file():
            raise UserError(f"{self.path} holds no model: its training did not get that far")
        tensors, metadata = read_tensors(self.path / MODEL)
        epoch = metadata.get("epoch", "")
        if not (epoch.isascii() and epoch.isdigit() and len(epoch) < 19):
            raise UserError(f"{self.path / MODEL}: does not say of which epoch it is")
        return tensors, int(epoch)

    def read_sampler(self) -> dict[str, Tensor]:
        """Read what the sampler kept."""
        return read_tensors(self.path / CACHE)[0] if (self.path / CACHE).is_file() else {}

    def read_graph(self, source: Source) -> KnowledgeGraph:
        """Read names and triples."""
        return read_graph(self.path, source)


def default_out(graph: KnowledgeGraph, config: TrainConfig) -> Path:
    """Return a free folder for a run that was given none."""
    model, sampler = (name.rpartition(":")[2] for name in (config.model, config.sampler))
    name = re.sub(r"[^\w.+-]+", "_", f"{graph.name}-{model}-{sampler}-seed{config.seed}")
    return free_path(Path("runs") / name.lstrip(".").lower())


def _is_record(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict):
        return False
    figures = RANKING_FIGURES if "split" in value else EPOCH_FIGURES
    return all(
        isinstance(value.get(name), int | float) and not abs(value[name]) > 1e300
        for name in figures
    )
