"""Keeps the results of a training of several processes: one of them writes, all stop together."""

import time
from pathlib import Path

import torch

from nscaching.errors import Stopped, UserError
from nscaching.files import link
from nscaching.kernels.state import State, is_finite
from nscaching.runs.folder import MODEL, RunFolder, resume_command
from nscaching.runs.parameters import built_model
from nscaching.runs.run import Run
from nscaching.runs.shard_checkpoints import BEST, ShardCheckpoints
from nscaching.training.listener import Listener, Stage
from nscaching.training.recorder import SHARE, Recorder
from nscaching.training.shard_trainer import ShardTrainer

PLACE_SECONDS = 5.0  # between two words on how far a process is


class ShardRecorder(Recorder):
    """Follows the trainer of one rank. Only the leading rank has a ``folder`` to write to."""

    trainer: ShardTrainer

    def __init__(
        self, run: Run, trainer: ShardTrainer, listener: Listener, every: float, folder: RunFolder
    ) -> None:
        self.world = trainer.world
        super().__init__(run, trainer, listener, every, folder if self.world.leads else None)
        trainer.best.folder = folder  # which all read, and one writes
        self.shared = folder
        self.shard_checkpoints = ShardCheckpoints(folder.path, self.world, trainer.shards)
        self.told = 0.0

    def report(self, stage: Stage, done: int, total: int) -> None:
        """Pass on the progress; stop, or write a checkpoint, where any rank wished for that.

        What a rank wishes for now all ranks know after the next step.
        """
        self.listener.progress(stage, done, total)
        now = time.monotonic()
        if now > self.told + PLACE_SECONDS:
            self.world.leave_place(f"{stage.value} {done:,} of {total:,}, {self._epoch()}")
            self.told = now
        if self.listener.stop():
            self.world.wishes.add("stop")
        if self.world.leads and now >= self.due:
            self.world.wishes.add("save")
        if stage is not Stage.TRAINING or not (agreed := self.world.agreed):
            return
        self.world.agreed = set()
        if "stop" in agreed:
            raise Stopped(self._stop())
        self.world.wishes.discard("save")
        try:
            self._save()
        except UserError as error:  # such as a full disk: there may be room later
            self.listener.note(f"no checkpoint could be written: {error}")
        later = time.monotonic()
        self.due = later + max(self.every, (later - now) / SHARE)
        self.trainer.meter.start_clock()

    def written(self) -> list[Path]:
        return self.shard_checkpoints.files()

    def _complete(self) -> None:
        """Let the leading rank write the files of a finished run, which take the whole model."""
        run, trainer = self.run, self.trainer
        if not trainer.best.kept:
            trainer.keep(trainer.trained)
        cache = trainer.sampler.cache
        rows = {} if cache is None else cache.gather(self.world)
        self.world.wait()
        if self.folder is not None:
            parameters, _ = self.folder.read_model()
            device = torch.device("cpu")  # a GPU that has a shard may have no room for the whole
            run.model = built_model(
                str(self.folder.path), run.config, run.graph, parameters, device
            )
            trainer.sampler.gathered = rows
            super()._complete()

    def _epoch(self) -> str:
        return f"epoch {self.trainer.trained + 1}"

    def _save(self) -> None:
        folder, trainer = self.folder, self.trainer
        # No checkpoint of a run that has diverged: the end of the epoch will raise the error.
        numbers = [trainer.meter.sums, *trainer.model.parameters()]
        if not all(self.world.gather(all(map(is_finite, numbers)))):
            return
        own = {} if folder is None else {"marks": folder.marks(), "settings": self.settings()}
        best = self.shared.path / MODEL if trainer.best.kept else None
        self.shard_checkpoints.save(own | trainer.checkpoint(), best)

    def _stop(self) -> str:
        try:
            self._save()
        except UserError as error:
            newest = self.written()
            left = f"the one before is {newest[-1]}" if newest else "there is none before it"
            return f"stopped in {self._epoch()} without a checkpoint: {error}; {left}"
        return f"stopped in {self._epoch()}; to resume: {resume_command(self.shared.path)}"

    def restore(self, state: State, where: Path) -> None:
        """Set trainer and folder to the state of a checkpoint, of any number of processes."""
        self._check_settings(state, where)
        try:
            self.trainer.restore(state)
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{where}: its checkpoint does not fit: {reason}") from error
        beside = state["folder"] / BEST
        self.trainer.best.kept = beside.exists()
        if self.folder is not None:
            self.folder.cut(state["marks"], self.trainer.judged)
            if beside.exists():
                link(beside, self.folder.path / MODEL)
        self.world.wait()
