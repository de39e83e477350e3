"""Training with a progress bar, stopped by SIGINT or SIGTERM."""

from pathlib import Path
from typing import Any

from nscaching.cli.progress import TrainingDisplay
from nscaching.cli.signals import Signals
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.runs.folder import RunFolder, resume_command
from nscaching.runs.run import Run
from nscaching.training.listener import Listener, Stage
from nscaching.training.train import resume, train


def train_watched(
    graph: KnowledgeGraph,
    config: TrainConfig,
    out: str | Path,
    **options: Any,  # noqa: ANN401  (those of train)
) -> Run:
    """Train with a progress bar, until a signal comes."""
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        listener = WatchedTraining(display, stop, "; nothing was written")
        run = train(graph, config, out=out, listener=listener, **options)
        stop.check(f"stopped; {run.path} is finished")
    return run


def resume_watched(
    path: str,
    trust: bool,
    **options: Any,  # noqa: ANN401  (those of resume)
) -> Run:
    """Resume a training run with a progress bar, until a signal comes."""
    _, config = RunFolder(path).read_config(trust)
    config = config.changed(epochs=options.get("epochs", config.epochs))
    with TrainingDisplay(f"{config.model} {config.sampler}", config) as display, Signals() as stop:
        listener = WatchedTraining(display, stop, f"; to resume: {resume_command(path)}")
        run = resume(path, trust=trust, listener=listener, **options)
        stop.check(f"stopped; {run.path} is finished")
    return run


class WatchedTraining(Listener):
    """Shows a training run. A signal acts at once before the first step, later after a step."""

    def __init__(self, display: TrainingDisplay, signals: Signals, left: str = "") -> None:
        self.display, self.signals, self.left = display, signals, left

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Count the epochs from before an interruption."""
        self.display.begin(history)

    def announce(self, text: str) -> None:
        """Show which kernels run."""
        self.display.announce(text)
        self.signals.check(f"stopped before the first step{self.left}")

    def record(self, record: dict[str, Any]) -> None:
        """Show an epoch or a ranking."""
        self.display.record(record)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        """Show the progress of a stage."""
        self.display.progress(stage, done, total)
        if stage is Stage.FILLING:  # no gradient step was made: nothing is lost
            self.signals.check(f"stopped before the first step{self.left}")

    def note(self, text: str) -> None:
        """Show a warning."""
        self.display.note(text)

    def stop(self) -> bool:
        """Say whether a signal came."""
        return self.signals()
