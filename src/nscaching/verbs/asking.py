"""Verbs that ask something of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nscaching.errors import UserError
from nscaching.verbs._base import Device, Json, RunPath

__all__ = ["Classify", "Evaluate", "Predict"]


@dataclass(frozen=True)
class Evaluate:
    """Rank the triples of a split: MRR, MR, Hit@1/3/10, by side, mapping class and relation.

    nscaching evaluate runs/x --split test --json
    """

    path: RunPath
    split: Literal["train", "valid", "test"] = "test"
    """Which triples to rank."""
    raw: bool = False
    """Let other known answers count too."""
    ties: Literal["realistic", "optimistic", "pessimistic"] = "realistic"
    """How equal scores rank."""
    memory_mb: int = 512
    """Memory for the scores of one chunk of queries."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Rank and print."""
        from nscaching import show, work
        from nscaching.run import Run

        if self.memory_mb < 1:
            raise UserError(f"--memory-mb must be at least 1, not {self.memory_mb}")
        run = Run.load(self.path, self.device)
        options = {"filtered": not self.raw, "ties": self.ties, "budget": self.memory_mb << 20}
        show.evaluation(run, work.evaluate(run, self.split, options), self.json)


@dataclass(frozen=True)
class Classify:
    """Tell true from false triples, by a threshold per relation fitted on validation.

    nscaching classify runs/x --json
    """

    path: RunPath
    split: Literal["valid", "test"] = "test"
    """Which triples to classify."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Classify and print."""
        from nscaching import show
        from nscaching.run import Run

        run = Run.load(self.path, self.device)
        show.classification(run, run.classify(self.split), self.json)


@dataclass(frozen=True)
class Predict:
    """Answer a triple with one gap, or judge a whole one; names or labels.

    nscaching predict runs/x --head Portugal --relation borders --top 5
    """

    path: RunPath
    head: str = ""
    """The head entity, by name or label; --head=NAME where it begins with a dash."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity; leave out what is asked for."""
    top: int = 10
    """How many answers."""
    known: Literal["hide", "mark"] = "hide"
    """Leave known facts out, or mark them."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Predict and print."""
        from nscaching import show
        from nscaching.run import Run

        run = Run.load(self.path, self.device)
        answer = run.predict(
            self.head or None, self.relation or None, self.tail or None, self.top, self.known
        )
        show.prediction(answer, self.json)
