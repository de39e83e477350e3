"""What a training leaves behind while it goes on: lines, the best parameters, checkpoints."""

from __future__ import annotations

import time
import warnings
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
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import Record, RunFolder, resume_command
from nscaching.samplers import Sampler
from nscaching.training.trainer import Trainer

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["CHECKPOINT_SECONDS", "Recording"]

CHECKPOINT_SECONDS = 60.0
"""Between checkpoints, unless told otherwise."""

# Where writing one takes long, they are rarer: at most this share of the time goes into them.
SHARE = 0.05


class Recording:
    """Keeps what a trainer finds in a run, and on disk where there is a folder.

    Without one there may be checkpoints alone, which then hold all that was found.
    """

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        folder: RunFolder | None = None,
        every: float = CHECKPOINT_SECONDS,
        stop: Callable[[], bool] | None = None,
        observe: Callable[[Record], None] | None = None,
        say: Callable[[str], None] = warnings.warn,
        alone: Checkpoints | None = None,
    ) -> None:
        if not 0 <= every < float("inf"):
            raise UserError(f"{flag('checkpoint_every')} must be zero or more seconds, not {every}")
        self.run, self.trainer, self.folder, self.observe = run, trainer, folder, observe
        self.every, self.stop, self.say, self.alone = every, stop, say, alone
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self.beside = ThreadPoolExecutor(1, "snapshots")
        self.unsettled: Future[None] | None = None
        """A snapshot that is written beside training, which would wait long for a slow disk."""
        self.due = self._next(0.0)
        if self.checkpoints is not None or stop is not None:
            trainer.pause = self.pause

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Where checkpoints go."""
        return self.alone if self.folder is None else self.folder.checkpoints

    def hear(self, record: Record) -> None:
        """Keep the record of an epoch or a ranking."""
        if self.unsettled is not None and self.unsettled.done():
            self.settle()
        self.run.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
            if record.get("best"):
                self.folder.save_model(self.trainer.best, self.trainer.best_epoch)
        if self.observe is not None:
            self.observe(record)

    def find(self, finding: Finding) -> None:
        """Keep what probes found."""
        self.run.scores += finding.scores
        if self.folder is not None:
            append_scores(self.folder.path, finding.scores)
        if finding.cache and self.folder is not None:
            self.settle()
            given = self.folder.path, finding.epoch, finding.cache
            self.unsettled = self.beside.submit(_beside_training(_save_snapshot), *given)
        elif finding.cache:
            self.snapshots[finding.epoch] = {name: ids.cpu() for name, ids in finding.cache.items()}

    def settle(self) -> None:
        """Wait until a snapshot is written; raise what kept it from being."""
        unsettled, self.unsettled = self.unsettled, None
        if unsettled is not None:
            unsettled.result()

    def close(self) -> None:
        """Let nothing be written any more."""
        self.beside.shutdown()

    def pause(self, between_steps: bool) -> None:
        """Write a checkpoint if one is due, or if the training is to stop; then it stops."""
        stopping = self.stop is not None and self.stop()
        if stopping:
            raise Stopped(self._stop())
        if between_steps and time.monotonic() >= self.due:
            began = time.monotonic()
            self.settle()  # a training that goes on after the checkpoint must find it
            try:
                self._save()
            except UserError as error:  # such as a full disk: there may be room again
                self.say(f"no checkpoint could be written: {error}")
            self.due = self._next(time.monotonic() - began)
            self.trainer.meter.start_clock()  # none of this was training

    def _next(self, took: float) -> float:
        """Return when the next checkpoint is due, after one that took some seconds."""
        seconds = max(self.every, took / SHARE)
        return time.monotonic() + seconds if self.every else float("inf")

    def _save(self) -> None:
        # What comes after a number that is not finite is worth nothing: the epoch will complain.
        numbers = [self.trainer.meter.sums, *self.trainer.model.parameters()]
        if self.checkpoints is not None and all(torch.isfinite(some).all() for some in numbers):
            state: State = {"settings": self.settings()}
            if self.folder is None:
                state["history"] = self.run.history
            else:
                state["marks"] = self.folder.marks()
            self.checkpoints.save(state | self.trainer.checkpoint())

    def _stop(self) -> str:
        """Write the last checkpoint; say how to go on."""
        epoch = self.trainer.trained + bool(self.trainer.meter.triples)
        if self.checkpoints is None:
            return f"stopped in epoch {epoch}"
        try:
            self.settle()
            self._save()
        except UserError as error:
            newest = self.checkpoints.files()
            left = f"the one before is {newest[-1]}" if newest else "there is none before it"
            return f"stopped in epoch {epoch} without a checkpoint: {error}; {left}"
        if self.folder is None:
            return f"stopped in epoch {epoch}, from which the same command goes on"
        return f"stopped in epoch {epoch}; to go on: {resume_command(self.folder.path)}"

    def settings(self) -> State:
        """Return what must be the same when the training goes on."""
        config, probes = self.run.config.to_dict(), self.run.probes.to_dict()
        for place in ("device", "kernels", "threads"):
            config.pop(place)
        if self.folder is None:  # what it started from is in the checkpoint, and may be elsewhere
            config["pretrain"] = config["generator_pretrain"] = ""
        probes = {name: list(v) if isinstance(v, tuple) else v for name, v in probes.items()}
        return {**config, **probes, "data": self.run.graph.fingerprint}

    def restore(self, state: State | None) -> None:
        """Set trainer, run and folder to where a checkpoint was made; None: to the start."""
        if state is None:
            if self.folder is not None:
                self.folder.cut({}, -1, ({}, 0))
            return
        assert self.checkpoints is not None
        where = self.checkpoints.folder if self.folder is None else self.folder.path
        for name, value in self.settings().items():
            before = state["settings"].get(name)
            # Nothing before the last epoch depends on how many there are to be.
            more = name == "epochs" and value > before
            if more and state["trained"] == before:
                raise UserError(
                    f"{where}: all its {before} epochs are trained, so that there can "
                    f"be no more of them: leave out {flag('epochs')}"
                )
            if before != value and not more:
                raise UserError(
                    f"{where}: the run was begun with {name} {before}, not {value}: it cannot go on"
                )
        try:
            self.trainer.restore(state)
            if self.folder is None:
                self.run.history = list(state["history"])
        except UserError:
            raise
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{where}: its checkpoint does not fit {self.run.config.model} and "
                f"{self.run.config.sampler}: {reason}"
            ) from error
        if self.folder is not None:
            best = self.trainer.best, self.trainer.best_epoch
            self.folder.cut(state["marks"], self.trainer.judged, best)
        kind = type(self.trainer.sampler)
        learns = kind.update is not Sampler.update and kind.checkpoint is Sampler.checkpoint
        if learns and not self.trainer.sampler.state():
            self.say(f"{kind.__name__} learns, but has no state to keep: it begins anew")

    def whence(self) -> str:
        """Say where a training goes on."""
        assert self.folder is not None
        if not (whole := self.folder.checkpoints.whole):
            return f"{self.folder.path} has no checkpoint yet: it begins anew"
        if self.trainer.over:
            return f"{whole[-1]}: all epochs are done, what is left is to rank and to finish"
        done = f"{100 * self.trainer.meter.triples // len(self.trainer.triples)} %"
        return f"{whole[-1]}: goes on in epoch {self.trainer.trained + 1}, of which {done} is done"


def _save_snapshot(folder: Path, epoch: int, cache: dict[str, Tensor]) -> None:
    """Write the cache of an epoch, which is taken out of the given dictionary."""
    here = {}
    while cache:  # what the GPU holds of it is free before the disk has it
        name, ids = cache.popitem()
        here[name] = ids.cpu()
        del ids
    save_snapshot(folder, epoch, here)


def _beside_training(work: Callable[..., None]) -> Callable[..., None]:
    """Return the work for another thread, with a stream of its own on a GPU.

    It begins with what this thread has asked of the GPU by now.
    """
    if not torch.cuda.is_initialized():
        return work
    by_now = torch.cuda.current_stream().record_event()

    def on_a_stream(*given: object) -> None:
        stream = torch.cuda.Stream()
        stream.wait_event(by_now)
        with torch.cuda.stream(stream):
            work(*given)

    return on_a_stream
