"""One slice of the training of one candidate, and the clock of the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nscaching.automatic.candidates import Candidate
from nscaching.training.listener import Listener, Stage


class Watch:
    """The callbacks of ``auto``. Override the methods that you need."""

    def announce(self, text: str) -> None:
        """Receive a line: a finding of the audit, or a warning."""

    def progress(self, spent: float, seconds: float, doing: str) -> None:
        """Receive the seconds that were spent, those in all, and what is done now; often."""

    def end(self, candidate: Candidate, best: bool) -> None:
        """Receive a candidate after a slice of its training, and whether it leads."""

    def stop(self) -> bool:
        """Return whether to stop: True keeps everything and raises ``Stopped``."""
        return False


class Clock:
    """The time of a search, with that of earlier processes."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds, self._before, self._began = seconds, spent, time.monotonic()

    def add(self, spent: float) -> None:
        self._before += spent

    @property
    def spent(self) -> float:
        return self._before + time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self.seconds - self.spent


class Slice(Listener):
    """Stops the training of a candidate when it has had its seconds, or when it gains no more.

    The seconds of a candidate count from its first step on: compiling happens once. A candidate is
    not stopped before its first validation, unless the time of the search is over.
    """

    def __init__(
        self,
        candidate: Candidate,
        until: float,
        clock: Clock,
        reserve: float,
        watch: Watch,
        on_look: Callable[[Candidate], None],
    ) -> None:
        self.candidate, self.until, self.watch, self.on_look = candidate, until, watch, on_look
        self.clock, self.reserve = clock, reserve
        self.before, self.began = candidate.seconds, 0.0
        self.asked = False  # by the watch: to end the search

    def begin(self, history: list[dict[str, Any]]) -> None:
        # The checkpoint counts: after a kill the journal may know more.
        self.candidate.looks = [record for record in history if record.get("split") == "valid"]

    def note(self, text: str) -> None:
        self.watch.announce(text)

    def record(self, record: dict[str, Any]) -> None:
        if record.get("split") == "valid":
            self._count()
            self.candidate.looks.append(record)
            self.on_look(self.candidate)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        if stage is not Stage.FILLING:
            self._count()
        best = self.candidate.best
        mrr = f"  valid MRR {best['mrr']:.4f}" if best else ""
        doing = "" if stage is Stage.TRAINING else f"  {stage.value} {100 * done // total}%"
        self.watch.progress(
            self.clock.spent, self.clock.seconds, f"{self.candidate.name}{mrr}{doing}"
        )

    def _count(self) -> None:
        now = time.monotonic()
        self.began = self.began or now
        self.candidate.seconds = self.before + now - self.began

    def stop(self) -> bool:
        one = self.candidate
        self.asked = self.asked or self.watch.stop()
        late = self.clock.left <= self.reserve
        had_enough = bool(one.looks) and one.seconds >= self.until
        return self.asked or late or had_enough or gains_no_more(one)


def gains_no_more(candidate: Candidate) -> bool:
    return candidate.without_gain >= candidate.patience
