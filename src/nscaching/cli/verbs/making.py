"""Verbs that make runs and set them side by side."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, Suppress, arg

from nscaching.cli.verbs._base import Json, Trust
from nscaching.config import TrainConfig
from nscaching.errors import UserError, user_path
from nscaching.probes import ProbeConfig
from nscaching.registry import refuse_outside_code

__all__ = ["Compare", "Datasets", "Demo", "Train"]


@dataclass(frozen=True)
class Datasets:
    """List the data sets that are known by name.

    nscaching datasets
    """

    json: Json = False

    def run(self) -> None:
        """Print what is known and what is on this machine already."""
        from nscaching.cli import show

        show.datasets(self.json)


@dataclass(frozen=True)
class Train:
    """Train an embedding and write a run folder.

    nscaching train world --model TransE --sampler nscaching --epochs 100 --seed 1 --out runs/x
    """

    where: Annotated[
        Positional[str],
        arg(metavar="WHERE", help="A known data set, a folder with train/valid/test, or a file."),
    ] = ""
    settings: OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    probes: OmitArgPrefixes[ProbeConfig] = field(default_factory=ProbeConfig)
    out: str = ""
    """Run folder to write; empty: a new one under runs/."""
    overwrite: bool = False
    """Replace the run folder if it exists."""
    config: str = ""
    """TOML file of settings, such as a run's config.toml; flags win over it."""
    preset: str = ""
    """Data and settings by name, tuned for the cache; NAME:paper tuned under Bernoulli sampling.
    Flags win over it; nscaching presets lists them."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Take the literals of RDF files for entities, too; else triples with one are left out."""
    dry_run: bool = False
    """Train nothing: say what it would need of memory and disk, and whether it fits."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, from which --resume goes on; 0: only when it is stopped."""
    resume: str = ""
    """Run folder of an interrupted training to go on with: everything comes from there, but
    --epochs may be more."""
    trust: Trust = False
    json: Json = False
    given: Suppress[tuple[str, ...]] = ()
    """Which settings the command line names."""

    def run(self) -> None:
        """Train, showing progress, and print the results."""
        from nscaching.cli import show, work
        from nscaching.runs.folder import default_out

        if self.resume:
            self._go_on()
            return
        if self.config and not self.trust:
            typed = dict.fromkeys(self.given, "")  # is trust enough
            refuse_outside_code(self.config, dataclasses.asdict(self.settings) | typed)
        if not self.where:
            raise UserError("say what to train on: a known data set, a folder or a file")
        work.check(self.settings, self.out, self.overwrite)
        self.probes.check(self.settings)
        graph = work.load(self.where, self.labels, self.split_seed, self.literals)
        if self.config:
            work.note_differences(graph, self.settings, user_path(self.config))
        if self.preset:
            work.note_preset(graph, self.settings, self.preset)
        show.graph(graph)
        out = self.out or default_out(graph, self.settings)
        if self.dry_run:
            found, refusal = work.dry_run(graph, self.settings, out, self.probes)
            show.memory(found, self.json)
            if refusal:
                raise UserError(refusal)
            return
        every = self.checkpoint_every
        run = work.train(graph, self.settings, out, self.overwrite, self.probes, every)
        show.run(run, self.json)

    def _go_on(self) -> None:
        from nscaching.cli import show, work

        if self.where:
            raise UserError(f"--resume takes the data from the run folder: leave out {self.where}")
        given = {name: getattr(self.settings, name) for name in self.given}
        show.run(work.resume(self.resume, self.checkpoint_every, given, self.trust), self.json)


@dataclass(frozen=True)
class Compare:
    """Compare runs: a table, and a plot of validation MRR against time.

    nscaching compare runs/a runs/b
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="Run folders.")]
    plot: str = ""
    """Image to write; empty: compare.png, or the next free name."""
    overwrite: bool = False
    """Replace the image if it exists."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Print the table and draw the plot."""
        from nscaching.cli import show, work
        from nscaching.files import free_path
        from nscaching.runs.run import Run

        runs = [Run.load(path, "cpu", self.trust) for path in self.paths]
        plot = user_path(self.plot) if self.plot else free_path(Path("compare.png"))
        show.comparison(runs, work.compare(runs, plot, self.overwrite), self.json)


@dataclass(frozen=True)
class Demo:
    """Train nscaching and Bernoulli sampling on the embedded data set and compare them.

    nscaching demo
    """

    out: str = ""
    """Folder for the two runs; empty: a new one under runs/."""
    epochs: int = 60
    """Epochs of each training."""
    json: Json = False

    def run(self) -> None:
        """Run the demonstration."""
        from nscaching.cli import demo

        demo.run(self.out, self.epochs, self.json)
