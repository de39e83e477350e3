"""Training with a progress bar, stopped by SIGINT or SIGTERM."""

from collections.abc import Callable

from nscaching.cli.progress import TrainingDisplay
from nscaching.cli.signals import Signals
from nscaching.config import TrainConfig
from nscaching.runs.run import Run


def watched(
    work: Callable[..., Run], config: TrainConfig, left: str = "; nothing was written"
) -> Run:
    """Train or resume with a progress bar, which ``work`` takes as its listener."""
    name = f"{config.model} {config.sampler}"
    with Signals() as signals, TrainingDisplay(name, config, signals, left) as display:
        run = work(listener=display)
        signals.check(f"stopped; {run.path} is finished")
    return run
