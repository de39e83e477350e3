"""Keeps the results of a trainer in a run and on disk: records, best parameters, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nscaching.errors import Stopped, UserError, flag
from nscaching.kernels.state import State
from nscaching.probes.files import append_scores, save_snapshot
from nscaching.probes.probes import Finding
from nscaching.runs.folder import Record, resume_command
from nscaching.samplers import Sampler
from nscaching.training.listener import Stage
from nscaching.training.session import Session
from nscaching.training.trainer import Trainer

if TYPE_CHECKING:
    from nscaching.runs.run import Run

# Where writing a checkpoint takes long, checkpoints are rarer: they take this share of the time.
SHARE = 0.05


class Recorder:
    """Follows a trainer: keeps its records and findings, writes checkpoints, stops on request."""

    def __init__(self, session: Session, run: Run, trainer: Trainer) -> None:
        self.session, self.run, self.trainer = session, run, trainer
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self.background = ThreadPoolExecutor(1, "snapshots")
        self.pending: Future[None] | None = None
        """A snapshot that another thread is writing: training does not wait for a slow disk."""
        self.due = self._next(0.0)
        trainer.report = self.report

    def follow(self) -> None:
        """Train, and keep all records and findings."""
        for found in self.trainer.train():
            if isinstance(found, Finding):
                self.keep_finding(found)
            else:
                self.keep_record(found)
        self.wait()

    def keep_record(self, record: Record) -> None:
        """Keep the record of an epoch or a ranking."""
        if self.pending is not None and self.pending.done():
            self.wait()  # which raises the error of a snapshot that failed
        self.run.history.append(record)
        if (folder := self.session.folder) is not None:
            folder.append(record)
            if record.get("best"):
                folder.save_model(self.trainer.best, self.trainer.best_epoch)
        self.session.listener.record(record)

    def keep_finding(self, finding: Finding) -> None:
        """Keep a finding of the probes."""
        self.run.scores += finding.scores
        if (folder := self.session.folder) is None:
            if finding.cache:
                here = {name: ids.cpu() for name, ids in finding.cache.items()}
                self.snapshots[finding.epoch] = here
            return
        append_scores(folder.path, finding.scores)
        if finding.cache:
            self.wait()
            given = folder.path, finding.epoch, finding.cache
            self.pending = self.background.submit(_in_background(_save_snapshot), *given)

    def wait(self) -> None:
        """Wait until the pending snapshot is written; raise the error if it failed."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """End the thread that writes snapshots."""
        self.background.shutdown()

    def report(self, stage: Stage, done: int, total: int) -> None:
        """Pass on the progress; stop if the listener asks for it, write a checkpoint if one is due.

        Between steps and within rankings a checkpoint holds the whole state of the run.
        """
        self.session.listener.progress(stage, done, total)
        if self.session.listener.stop():
            raise Stopped(self._stop())
        if stage.after_a_step and time.monotonic() >= self.due:
            began = time.monotonic()
            self.wait()  # a run that resumes from the checkpoint needs the snapshot
            try:
                self._save()
            except UserError as error:  # such as a full disk: there may be room later
                self.session.listener.note(f"no checkpoint could be written: {error}")
            self.due = self._next(time.monotonic() - began)
            self.trainer.meter.start_clock()  # writing does not count as training time

    def _next(self, took: float) -> float:
        """Return when the next checkpoint is due, after one that took some seconds."""
        seconds = max(self.session.every, took / SHARE)
        return time.monotonic() + seconds if self.session.every else float("inf")

    def _save(self) -> None:
        # No checkpoint of a run that has diverged: the end of the epoch will raise the error.
        numbers = [self.trainer.meter.sums, *self.trainer.model.parameters()]
        checkpoints, folder = self.session.checkpoints, self.session.folder
        if checkpoints is not None and all(torch.isfinite(some).all() for some in numbers):
            state: State = {"settings": self.settings()}
            if folder is None:
                state["history"] = self.run.history
            else:
                state["marks"] = folder.marks()
            checkpoints.save(state | self.trainer.checkpoint())

    def _stop(self) -> str:
        """Write the last checkpoint; say how to resume."""
        epoch = self.trainer.trained + bool(self.trainer.meter.triples)
        if (checkpoints := self.session.checkpoints) is None:
            return f"stopped in epoch {epoch}"
        try:
            self.wait()
            self._save()
        except UserError as error:
            newest = checkpoints.files()
            left = f"the one before is {newest[-1]}" if newest else "there is none before it"
            return f"stopped in epoch {epoch} without a checkpoint: {error}; {left}"
        if self.session.folder is None:
            return f"stopped in epoch {epoch}; the same command resumes it"
        return f"stopped in epoch {epoch}; to resume: {resume_command(self.session.folder.path)}"

    def settings(self) -> State:
        """Return the settings that must be the same when the run resumes."""
        config, probes = self.run.config.to_dict(), self.run.probes.to_dict()
        for place in ("device", "kernels", "threads"):
            config.pop(place)
        if self.session.folder is None:  # the checkpoint holds the parameters of the start
            config["pretrain"] = config["generator_pretrain"] = ""
        probes = {name: list(v) if isinstance(v, tuple) else v for name, v in probes.items()}
        return {**config, **probes, "data": self.run.graph.fingerprint}

    def restore(self, state: State | None) -> None:
        """Set trainer, run and folder to the state of a checkpoint; None: to the start."""
        folder = self.session.folder
        if state is None:
            if folder is not None:
                folder.cut({}, -1, ({}, 0))
            return
        assert self.session.checkpoints is not None
        where = self.session.checkpoints.folder if folder is None else folder.path
        self._check_settings(state, where)
        try:
            self.trainer.restore(state)
            if folder is None:
                self.run.history = list(state["history"])
        except UserError:
            raise
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{where}: its checkpoint does not fit {self.run.config.model} and "
                f"{self.run.config.sampler}: {reason}"
            ) from error
        if folder is not None:
            best = self.trainer.best, self.trainer.best_epoch
            folder.cut(state["marks"], self.trainer.judged, best)
        kind = type(self.trainer.sampler)
        learns = kind.update is not Sampler.update and kind.checkpoint is Sampler.checkpoint
        if learns and not self.trainer.sampler.state():
            self.session.listener.note(
                f"{kind.__name__} learns, but has no state to keep: it starts from the beginning"
            )

    def _check_settings(self, state: State, where: Path) -> None:
        for name, value in self.settings().items():
            before = state["settings"].get(name)
            # Nothing before the last epoch depends on the number of epochs.
            more = name == "epochs" and value > before
            if more and state["trained"] == before:
                reason = f"all its {before} epochs are trained, and no more can be added"
                raise UserError(f"{where}: {reason}: leave out {flag('epochs')}")
            if before != value and not more:
                reason = f"the run has {name} {before} and cannot resume with {value}"
                raise UserError(f"{where}: {reason}")

    def resume_point(self) -> str:
        """Say where the run resumes."""
        assert self.session.folder is not None
        if not (whole := self.session.folder.checkpoints.whole):
            return f"{self.session.folder.path} has no checkpoint yet: training starts at epoch 1"
        if self.trainer.over:
            return f"{whole[-1]}: all epochs are done, what is left is to rank and to finish"
        done = f"{100 * self.trainer.meter.triples // len(self.trainer.triples)} %"
        return f"{whole[-1]}: resumes in epoch {self.trainer.trained + 1}, of which {done} is done"


def _save_snapshot(folder: Path, epoch: int, cache: dict[str, Tensor]) -> None:
    """Write the cache of an epoch, and empty the given dictionary."""
    here = {}
    while cache:  # so that memory of the GPU is free before the disk has the tensor
        name, ids = cache.popitem()
        here[name] = ids.cpu()
        del ids
    save_snapshot(folder, epoch, here)


def _in_background(work: Callable[..., None]) -> Callable[..., None]:
    """Return the work for another thread; on a GPU, on a separate stream.

    The stream begins after all work that this thread has given to the GPU so far.
    """
    if not torch.cuda.is_initialized():
        return work
    so_far = torch.cuda.current_stream().record_event()

    def on_a_stream(*given: object) -> None:
        stream = torch.cuda.Stream()
        stream.wait_event(so_far)
        with torch.cuda.stream(stream):
            work(*given)

    return on_a_stream
