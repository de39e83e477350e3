"""A run folder on disk: written during training, each file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching import files
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph, Source
from nscaching.errors import UserError, flag, user_path
from nscaching.evaluation.ranks import METRICS as RANKING_METRICS
from nscaching.probes import ProbeConfig
from nscaching.probes.files import SCORES, SNAPSHOT, SNAPSHOTS, remove_snapshots
from nscaching.registry import outside_code, refuse_outside_code
from nscaching.runs import settings
from nscaching.runs.checkpoints import CHECKPOINT, CHECKPOINTS, SHARDED, Checkpoints
from nscaching.runs.settings import CONFIG, ENTITIES, FORMAT, TRIPLES, VOCABULARY

if TYPE_CHECKING:
    from torch import Tensor

# The names of the files.
METRICS = "metrics.jsonl"
MODEL, CACHE = "model.safetensors", "cache.safetensors"
CARD, PLOT, REPORT = "README.md", "training.png", "report.html"
CALIBRATION = "calibration.json"
FILES = {CONFIG, METRICS, SCORES, VOCABULARY, MODEL, CACHE, TRIPLES, CARD, PLOT, REPORT}
MAP = {method: f"map-{method}.safetensors" for method in ("pca", "umap", "opentsne", "tsne")}
FILES |= {CALIBRATION, ENTITIES, *MAP.values()}
FOLDERS = {SNAPSHOTS: SNAPSHOT, CHECKPOINTS: CHECKPOINT}

Record = dict[str, Any]  # one line of metrics.jsonl: an epoch, or a ranking of a split

# The figures that every line of metrics.jsonl has.
EPOCH_FIGURES = ("epoch", "loss", "seconds")
RANKING_FIGURES = ("epoch", *RANKING_METRICS, "trained_seconds", "seconds")


def resume_command(path: str | Path) -> str:
    trust = ""
    with contextlib.suppress(UserError):
        _, config = RunFolder(path).read_config(trust=True)
        trust = " --trust" if outside_code(config.to_dict()) else ""
    return f"nscaching train --resume {shlex.quote(str(path))}{trust}"


class RunFolder:
    """The folder of one run. It holds the data too, so that nothing else is needed."""

    def __init__(self, path: str | Path) -> None:
        self.path = self.target = user_path(path)
        self.checkpoints = Checkpoints(self.path)
        self.lock: files.FolderLock | None = None

    def check_free(self, overwrite: bool) -> None:
        """Refuse a path that cannot be written, or that exists and must not be overwritten."""
        there = next((p for p in self.path.absolute().parents if p.exists()), Path("/"))
        if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
            reason = f"{there} or its file system is read-only"
            raise UserError(f"{self.path}: cannot write the run folder: {reason}")
        interrupted = f", or {flag('resume')} {self.path}" if self.checkpoints.exist() else ""
        files.refuse_existing(self.path, flag("out"), overwrite, interrupted)
        if self.path.exists() or self.path.is_symlink():
            check_own(self.path)
            files.FolderLock(self.path).release()

    def create(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        overwrite: bool = False,
        record: Record | None = None,
        probes: ProbeConfig | None = None,
    ) -> None:
        """Make the folder with configuration and data; replace an existing run only if told to.

        The folder gets its name when both are written. An existing run stays as it is until
        ``finish``: the new run is written beside it. ``record`` goes into the configuration file.
        """
        self.check_free(overwrite)
        record = dict(record or {})
        if self.target.exists():
            self.path = files.free_path(self.target.with_name(self.target.name + files.PARTIAL))
            self.checkpoints = Checkpoints(self.path)
            record["replaces"] = self.target.name
        new = files.free_path(self.path.with_name(f"{self.path.name}.{os.getpid()}{files.PARTIAL}"))
        try:
            new.mkdir(parents=True)
            self.lock = files.FolderLock(new)
            settings.write_config(new / CONFIG, graph, config, record, probes)
            settings.write_graph(new, graph)
            (new / METRICS).touch()
            new.rename(self.path)
        except BaseException as error:
            shutil.rmtree(new, ignore_errors=True)
            if not isinstance(error, OSError | UnicodeError):  # UnicodeError: a path not in UTF-8
                raise
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path}: cannot write the run folder: {reason}") from error

    def _check_is_run(self) -> None:
        if not self.path.exists():
            raise UserError(f"{self.path} does not exist")
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder: it has no {CONFIG}")

    def reopen(self) -> None:
        self._check_is_run()
        if not os.access(self.path, os.W_OK):
            raise UserError(f"cannot write {self.path}: the folder or its file system is read-only")
        self.lock = files.FolderLock(self.path)
        replaces = settings.read_record(self.path / CONFIG).get("replaces", "")
        if self.path.name.endswith(files.PARTIAL) and isinstance(replaces, str) and replaces:
            self.target = self.path.with_name(Path(replaces).name)

    @property
    def finished(self) -> bool:
        """Whether the run has all its files and its final name, and no checkpoints."""
        return has_ended(self.path) and not self.checkpoints.exist() and self.path == self.target

    @property
    def in_use(self) -> bool:
        """Whether another process is training there."""
        try:
            files.FolderLock(self.path).release()
        except UserError:
            return True
        return False

    def marks(self) -> dict[str, int]:
        """Sync the files that a checkpoint relies on; return the sizes of the growing ones."""
        if not self.checkpoints.whole:
            self.sync()
        grown = [self.path / name for name in (METRICS, SCORES) if (self.path / name).exists()]
        for file in grown:
            files.sync(file)
        return {file.name: file.stat().st_size for file in grown}

    def sync(self) -> None:
        for file in self.path.iterdir():
            if file.is_file():
                files.sync(file)
        files.sync(self.path)
        files.sync(self.path.parent)

    def cut(self, marks: dict[str, int], epoch: int, best: Path | None = None) -> None:
        """Undo what was written after a checkpoint: lines, snapshots, parameters."""
        for file in (self.path / name for name in (METRICS, SCORES)):
            size, mark = file.stat().st_size if file.exists() else 0, marks.get(file.name, 0)
            if size < mark:
                raise UserError(f"{file} is shorter than when the checkpoint was written")
            if size > mark:
                with files.writing(file):
                    os.truncate(file, mark)
        remove_snapshots(self.path, epoch)
        if best is not None:
            files.link(best, self.path / MODEL)
        else:
            (self.path / MODEL).unlink(missing_ok=True)

    def finish(self) -> None:
        """Move a run that was written beside an old run into its place."""
        if self.path == self.target:
            return
        old = files.free_path(self.target.with_name(f"{self.target.name}.replaced{files.PARTIAL}"))
        if self.target.exists():
            try:
                check_own(self.target)
                files.FolderLock(self.target).release()
            except UserError as error:
                warnings.warn(f"{error}; the new run is {self.path}", stacklevel=2)
                self.target = self.path
                return
            self.target.rename(old)
        self.path = self.path.rename(self.target)
        self.checkpoints = Checkpoints(self.path)
        shutil.rmtree(old, ignore_errors=True)  # check_own found nothing but files of a run

    def close(self) -> None:
        if self.checkpoints.folder.is_dir():
            self.sync()
            self.checkpoints.remove()

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def discard(self) -> None:
        """Delete a failed run that was to replace an old run, unless it can be resumed."""
        if self.path != self.target and not self.checkpoints.exist():
            shutil.rmtree(self.path, ignore_errors=True)

    def append(self, *records: Record) -> None:
        files.append_lines(self.path / METRICS, list(records))

    def save_model(self, parameters: dict[str, Tensor], epoch: int) -> None:
        files.save_tensors(self.path / MODEL, parameters, {"epoch": str(epoch)})

    def read_config(self, trust: bool = False) -> tuple[Source, TrainConfig]:
        """Read the configuration; refuse one that names outside code, unless ``trust`` is given."""
        self._check_is_run()
        path = files.regular_file(self.path / CONFIG)
        written = settings.read_record(path).get("format", FORMAT)
        if written != FORMAT:
            cure = f"this version of nscaching reads {FORMAT}: use the version that wrote it"
            raise UserError(f"{self.path} has format {written!r}, {cure}")
        source, config = settings.read_settings(path)
        if not trust:
            refuse_outside_code(path, config.to_dict())
        return source, config

    def read_history(self) -> list[Record]:
        return files.read_lines(self.path / METRICS, _is_record, "metrics")

    def read_model(self) -> tuple[dict[str, Tensor], int]:
        if not (self.path / MODEL).is_file():
            raise UserError(f"{self.path} holds no model: its training did not get that far")
        tensors, metadata = files.read_tensors(self.path / MODEL)
        epoch = metadata.get("epoch", "")
        if not (epoch.isascii() and epoch.isdigit() and len(epoch) < 19):
            raise UserError(f"{self.path / MODEL}: does not say of which epoch it is")
        return tensors, int(epoch)

    def read_sampler(self) -> dict[str, Tensor]:
        return files.read_tensors(self.path / CACHE)[0] if (self.path / CACHE).is_file() else {}

    def read_graph(self, source: Source) -> KnowledgeGraph:
        return settings.read_graph(self.path, source)


def result_of(history: list[Record], epoch: int, split: str) -> Record | None:
    """Return the ranking of a split that training recorded for the parameters of an epoch."""
    rankings = [r for r in history if r.get("split") == split and not r.get("traced")]
    found = [r for r in rankings if r["epoch"] == epoch]
    return found[-1] if found else None


def split_name(record: Record) -> str:
    """Return the split of a ranking, with the number of candidates where they were sampled."""
    candidates, split = record.get("candidates", 0), str(record["split"])
    return f"{split}, {candidates:,} sampled candidates" if candidates else split


def default_out(graph: KnowledgeGraph, config: TrainConfig) -> Path:
    model, sampler = (name.rpartition(":")[2] for name in (config.model, config.sampler))
    name = re.sub(r"[^\w.+-]+", "_", f"{graph.name}-{model}-{sampler}-seed{config.seed}")
    return files.free_path(Path("runs") / name.lstrip(".").lower())


def _is_record(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict):
        return False
    figures = RANKING_FIGURES if "split" in value else EPOCH_FIGURES
    numbers = [value.get(name) for name in figures]
    return all(isinstance(x, int | float) and not abs(x) > 1e300 for x in numbers)


def has_ended(path: Path) -> bool:
    """Say whether a training run is finished: only then the folder has a card or a plot."""
    return any((path / name).is_file() for name in (CARD, PLOT))


def _is_own(file: Path, pattern: re.Pattern[str]) -> bool:
    if file.is_dir():
        return SHARDED.fullmatch(file.name) is not None and not file.is_symlink()
    return pattern.fullmatch(file.name) is not None


def check_own(path: Path) -> None:
    """Refuse to overwrite a folder that is not a run folder, or that holds other files too."""
    made = all((path / name).is_file() for name in (CONFIG, VOCABULARY))
    if path.is_symlink() or not made:
        raise UserError(f"{path} is not a run folder, so it is not overwritten")
    others: list[Path] = []
    for file in path.iterdir():
        pattern = FOLDERS.get(file.name)
        if pattern and file.is_dir() and not file.is_symlink():
            others += [f for f in file.iterdir() if not _is_own(f, pattern)]
        elif file.is_dir() or file.name.removesuffix(files.PARTIAL) not in FILES:
            others.append(file)
    for other in others:
        what = f"it holds {other.name}, which is no file of a run"
        raise UserError(f"{other.parent} is not overwritten: {what}")
