"""The callbacks of a training run: they report progress and may stop the run."""

import warnings
from enum import Enum
from typing import Any


class Stage(Enum):
    """The part of a training run that makes progress. The value is a label for people to read."""

    FILLING = "filling the cache"
    TRAINING = "training"
    VALID = "valid"
    TEST = "test"


class Listener:
    """The callbacks of a training run. Override the methods that you need.

    An exception that a method raises ends the run.
    """

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Receive the records from before an interruption, none for a new run, before training."""

    def announce(self, text: str) -> None:
        """Receive a line: which kernels run and why, or where an interrupted run resumes."""

    def record(self, record: dict[str, Any]) -> None:
        """Receive the record of an epoch or of a ranking: a line of ``metrics.jsonl``."""

    def progress(self, stage: Stage, done: int, total: int) -> None:
        """Receive the steps done and the steps in all of a stage, after every step."""

    def note(self, text: str) -> None:
        """Receive a warning, such as that no checkpoint can be written."""
        warnings.warn(text, stacklevel=2)

    def stop(self) -> bool:
        """Return whether to stop after this step: True writes a checkpoint, raises ``Stopped``."""
        return False
