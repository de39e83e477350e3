"""Keeps the results of a trainer in a run and on disk: records, best parameters, checkpoints."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.errors import Diverged, Stopped, UserError, flag
from nscaching.files import CannotWriteError
from nscaching.kernels.state import State, is_finite
from nscaching.probes.files import append_scores, save_snapshot
from nscaching.probes.probes import Finding
from nscaching.runs.checkpoints import Checkpoints, best_of
from nscaching.runs.folder import MODEL, Record, RunFolder, resume_command
from nscaching.samplers import Sampler
from nscaching.training.listener import Listener, Stage
from nscaching.training.trainer import Trainer

if TYPE_CHECKING:
    from nscaching.runs.run import Run

# Where writing a checkpoint takes long, checkpoints are rarer: they take this share of the time.
SHARE = 0.05


class Recorder:
    """Follows a trainer: keeps its records and findings, writes checkpoints, stops on request."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        listener: Listener,
        every: float,
        folder: RunFolder | None = None,
        alone: Checkpoints | None = None,
    ) -> None:
        """Take the seconds between checkpoints; 0: a checkpoint only when the run is stopped.

        The checkpoints of a run without a folder, ``alone``, hold the records too.
        """
        self.run, self.trainer, self.listener = run, trainer, listener
        self.every, self.folder, self.alone = every or float("inf"), folder, alone
        self.background = ThreadPoolExecutor(1, "snapshots")
        self.pending: Future[None] = Future()
        """A snapshot that another thread is writing: training does not wait for a slow disk."""
        self.pending.set_result(None)
        self.due = time.monotonic() + self.every
        trainer.report, trainer.best.folder = self.report, folder

    @property
    def checkpoints(self) -> Checkpoints | None:
        return self.alone if self.folder is None else self.folder.checkpoints

    def written(self) -> list[Path]:
        """Return the whole checkpoints, the newest last."""
        return [] if self.checkpoints is None else self.checkpoints.files()

    def finish(self) -> Run:
        folder = self.folder
        try:
            for found in self.trainer.train():
                if isinstance(found, Finding):
                    self.keep_finding(found)
                else:
                    self.keep_record(found)
            self.pending.result()
            self._complete()
        except Diverged as error:
            raise Diverged(f"{error}; {self._last_good()}") from None
        except CannotWriteError as error:
            if folder is None or not self.written():
                raise
            raise UserError(f"{error}; to resume later: {resume_command(folder.path)}") from error
        finally:
            self.background.shutdown()
        return self.run

    def _complete(self) -> None:
        run, trainer = self.run, self.trainer
        run.best_epoch, run.sampler_state = trainer.best_epoch, trainer.sampler.state()
        run.test_ranks = trainer.ranks.get("test")
        if self.folder is not None:
            run.finish(self.folder, trainer.best.kept)

    def _last_good(self) -> str:
        folder, epoch = self.folder, self.trainer.best_epoch
        if folder is None or not epoch:
            return "no parameters were kept before that"
        if folder.path != folder.target:
            return f"the run in {folder.target} is as it was"
        return f"the best before, of epoch {epoch}, are in {folder.path / MODEL}"

    def keep_record(self, record: Record) -> None:
        if self.pending.done():
            self.pending.result()  # which raises the error of a snapshot that failed
        self.run.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
        self.listener.record(record)

    def keep_finding(self, finding: Finding) -> None:
        self.run.scores += finding.scores
        if self.folder is None:
            if finding.cache:
                here = {name: ids.cpu() for name, ids in finding.cache.items()}
                self.run.snapshots = {**self.run.snapshots, finding.epoch: here}
            return
        append_scores(self.folder.path, finding.scores)
        if finding.cache:
            self.pending.result()
            on_gpu = torch.cuda.is_initialized()
            so_far = torch.cuda.current_stream().record_event() if on_gpu else None
            given = self.folder.path, finding.epoch, finding.cache, so_far
            self.pending = self.background.submit(_save_snapshot, *given)

    def report(self, stage: Stage, done: int, total: int) -> None:
        """Pass on the progress; stop if the listener asks for it, write a checkpoint if one is due.

        Between steps and within rankings a checkpoint holds the whole state of the run.
        """
        self.listener.progress(stage, done, total)
        if self.listener.stop():
            raise Stopped(self._stop())
        if stage is Stage.TRAINING and time.monotonic() >= self.due:
            began = time.monotonic()
            self.pending.result()  # a run that resumes from the checkpoint needs the snapshot
            try:
                self._save()
            except UserError as error:  # such as a full disk: there may be room later
                self.listener.note(f"no checkpoint could be written: {error}")
            now = time.monotonic()
            self.due = now + max(self.every, (now - began) / SHARE)
            self.trainer.meter.start_clock()  # writing does not count as training time

    def _save(self) -> None:
        # No checkpoint of a run that has diverged: the end of the epoch will raise the error.
        numbers = [self.trainer.meter.sums, *self.trainer.model.parameters()]
        checkpoints, folder = self.checkpoints, self.folder
        if checkpoints is not None and all(map(is_finite, numbers)):
            lines = {"history": self.run.history} if folder is None else {"marks": folder.marks()}
            state = {"settings": self.settings(), **lines, **self.trainer.checkpoint()}
            best = None if folder is None or not self.trainer.best.kept else folder.path / MODEL
            checkpoints.save(state, best)

    def _stop(self) -> str:
        stopped = f"stopped in epoch {self.trainer.trained + bool(self.trainer.meter.triples)}"
        if self.checkpoints is None:
            return stopped
        try:
            self.pending.result()
            self._save()
        except UserError as error:
            newest = self.written()
            left = f"the one before is {newest[-1]}" if newest else "there is none before it"
            return f"{stopped} without a checkpoint: {error}; {left}"
        if self.folder is None:
            return f"{stopped}; the same command resumes it"
        return f"{stopped}; to resume: {resume_command(self.folder.path)}"

    def settings(self) -> State:
        """Return the settings that must be the same when the run resumes."""
        config, probes = self.run.config.to_dict(), self.run.probes.to_dict()
        for place in ("device", "kernels", "threads", "cache_place"):
            config.pop(place)
        if self.folder is None:  # the checkpoint holds the parameters of the start
            config["pretrain"] = config["generator_pretrain"] = ""
        probes = {name: list(v) if isinstance(v, tuple) else v for name, v in probes.items()}
        return {**config, **probes, "data": self.run.graph.fingerprint}

    def restore(self, state: State, where: Path) -> None:
        """Set trainer, run and folder to the state of a checkpoint; errors name ``where``."""
        self._check_settings(state, where)
        try:
            self.trainer.restore(state)
            if self.folder is None:
                self.run.history = list(state["history"])
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            names = f"{self.run.config.model} and {self.run.config.sampler}"
            raise UserError(f"{where}: its checkpoint does not fit {names}: {reason}") from error
        if self.folder is not None:
            self._restore_folder(self.folder, state)
        if "triples.random" in state:  # the random state of an order that was stored
            said = "was written by an earlier version: the triples come in another order from here"
            self.listener.note(f"the checkpoint in {where} {said}")
        kind = type(self.trainer.sampler)
        learns = kind.update is not Sampler.update and kind.checkpoint is Sampler.checkpoint
        no_cache = kind.has_cache and not self.run.config.cache.n1
        if learns and not no_cache and not self.trainer.sampler.state():
            lost = "learns, but has no state to keep: it starts from the beginning"
            self.listener.note(f"{kind.__name__} {lost}")

    def _restore_folder(self, folder: RunFolder, state: State) -> None:
        best, trainer = self.trainer.best, self.trainer
        beside = best_of(folder.checkpoints.whole[-1])
        folder.cut(state["marks"], trainer.judged, beside if beside.exists() else None)
        if best.tensors:  # of a checkpoint that holds them itself
            folder.save_model(best.tensors, trainer.best_epoch)
            best.tensors = {}
        best.kept = best.kept or beside.exists()

    def _check_settings(self, state: State, where: Path) -> None:
        defaults = TrainConfig().to_dict()  # of settings that came after the checkpoint
        for name, value in self.settings().items():
            before = state["settings"].get(name, defaults.get(name))
            # Nothing before the last epoch depends on the number of epochs.
            more = name == "epochs" and value > before
            if more and state["trained"] == before:
                reason = f"all its {before} epochs are trained, and no more can be added"
                raise UserError(f"{where}: {reason}: leave out {flag('epochs')}")
            if before != value and not more:
                reason = f"the run has {name} {before} and cannot resume with {value}"
                raise UserError(f"{where}: {reason}")


def _save_snapshot(
    folder: Path, epoch: int, cache: dict[str, Tensor], after: torch.cuda.Event | None = None
) -> None:
    """Write the cache of an epoch, and empty the given dictionary.

    On a GPU this happens in a stream of its own, which begins after an event.
    """
    stream = None
    if after is not None:
        stream = torch.cuda.Stream()
        stream.wait_event(after)
    here = {}
    with nullcontext() if stream is None else torch.cuda.stream(stream):  # no GPU: none is woken
        while cache:  # so that memory of the GPU is free before the disk has the tensor
            name, ids = cache.popitem()
            here[name] = ids.cpu()
            del ids
    save_snapshot(folder, epoch, here)
