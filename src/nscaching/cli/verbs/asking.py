"""Verbs that ask something of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from nscaching.cli.verbs._base import Device, Json, RunPath, Trust
from nscaching.errors import UserError

__all__ = ["Classify", "Evaluate", "Export", "Neighbours", "Predict"]


@dataclass(frozen=True)
class Evaluate:
    """Rank the triples of a split: MRR, MR, Hit@1/3/10, by side, mapping class and relation.

    nscaching evaluate runs/x --split test --json
    """

    path: RunPath
    task: Literal["links", "relations"] = "links"
    """What to rank: the head and the tail among all entities, or the relation of (h, ?, t)."""
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
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Rank and print."""
        from nscaching.cli import show, work
        from nscaching.runs.run import Run

        if self.memory_mb < 1:
            raise UserError(f"--memory-mb must be at least 1, not {self.memory_mb}")
        run = Run.load(self.path, self.device, self.trust)
        options: dict[str, Any] = {"task": self.task}
        options |= {"filtered": not self.raw, "ties": self.ties, "budget": self.memory_mb << 20}
        show.evaluation(run, work.evaluate(run, self.split, options), self.json)


@dataclass(frozen=True)
class Classify:
    """Tell true from false triples, by a threshold per relation fitted on validation.

    nscaching classify runs/x --task entities --relation in_subregion
    """

    path: RunPath
    task: Literal["triples", "entities", "linking"] = "triples"
    """Is a triple true? With --relation: which class is an entity of, which two are the same?"""
    relation: str = ""
    """What says of which class an entity is (such as IsA), or that two are the same (EqualTo)."""
    split: Literal["valid", "test"] = "test"
    """Which triples to classify."""
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Classify and print."""
        from nscaching.cli import show
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        result = run.classify(self.split, self.task, self.relation or None)
        show.classification(run, result, self.json)


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
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Predict and print."""
        from nscaching.cli import show
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        answer = run.predict(
            self.head or None, self.relation or None, self.tail or None, self.top, self.known
        )
        show.prediction(answer, self.json)


@dataclass(frozen=True)
class Neighbours:
    """List the entities whose vectors are nearest to that of an entity.

    nscaching neighbours runs/x Portugal --top 5
    """

    path: RunPath
    name: Annotated[Positional[str], arg(metavar="NAME", help="An entity, by name or label.")]
    top: int = 10
    """How many."""
    by: Literal["cosine", "distance"] = "cosine"
    """What nearness is: the angle between the vectors, or their Euclidean distance."""
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Find and print."""
        from nscaching.cli import show
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        show.neighbours(run.neighbours(self.name, self.top, self.by), self.json)


@dataclass(frozen=True)
class Export:
    """Write the vectors with their names: .safetensors, .npz, .tsv (word2vec) or .parquet.

    nscaching export runs/x --to vectors.npz
    """

    path: RunPath
    to: str
    """File to write; its suffix says the format."""
    overwrite: bool = False
    """Replace the file if it exists."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Write, showing progress if it takes long."""
        from nscaching.cli import show, work
        from nscaching.runs.run import Run

        run = Run.load(self.path, "cpu", self.trust)
        show.export(run, work.export(run, self.to, self.overwrite), self.json)
