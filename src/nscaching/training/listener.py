"""What a training run tells its caller while it runs, and what the run asks the caller."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

__all__ = ["Listener", "Stage"]


class Stage(Enum):
    """The part of a training run that makes progress. The value is a label for people to read."""

    FILLING = "filling the cache"
    TRAINING = "training"
    VALID = "valid"
    TEST = "test"

    @property
    def before_first_step(self) -> bool:
        """Whether no gradient step can have been made: nothing is lost when the run ends here."""
        return self is Stage.FILLING

    @property
    def after_a_step(self) -> bool:
        """Whether a gradient step was just made: a checkpoint here holds something new."""
        return self is Stage.TRAINING

    @property
    def ranks(self) -> bool:
        """Whether the triples of a split are being ranked."""
        return self in (Stage.VALID, Stage.TEST)


class Listener:
    """Hears of a training run. No method does anything here: override those you need.

    An exception that a method raises ends the run.
    """

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Hear the records from before an interruption, none for a new run, before training."""

    def announce(self, text: str) -> None:
        """Hear which kernels run and why, and where an interrupted run resumes."""

    def record(self, record: dict[str, Any]) -> None:
        """Hear the record of an epoch or of a ranking: a line of ``metrics.jsonl``."""

    def progress(self, stage: Stage, done: int, total: int) -> None:
        """Hear how far a stage is, after every step."""

    def note(self, text: str) -> None:
        """Hear a warning, such as that no checkpoint can be written."""
        warnings.warn(text, stacklevel=2)

    def stop(self) -> bool:
        """Say after every step whether to stop: True writes a checkpoint and raises ``Stopped``."""
        return False
