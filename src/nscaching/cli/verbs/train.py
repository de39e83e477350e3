"""The verb ``train``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tyro.conf import OmitArgPrefixes, Suppress

from nscaching.cli.tables import HEADINGS, metric_cells, note, print_json, print_table, say
from nscaching.cli.verbs._base import Json, Trust, Where
from nscaching.cli.verbs.compare import summary
from nscaching.config import TrainConfig
from nscaching.errors import UserError, as_flag, user_path
from nscaching.probes import ProbeConfig
from nscaching.registry import refuse_outside_code
from nscaching.runs.escaping import visible

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph
    from nscaching.runs.run import Run
    from nscaching.training.memory import Statement

# The flags that go with --resume: none of them changes the steps that are done.
RESUMABLE = {
    "checkpoint_every",
    "device",
    "epochs",
    "json",
    "kernels",
    "resume",
    "threads",
    "trust",
}


@dataclass(frozen=True)
class Train:
    """Train an embedding and write a run folder.

    nscaching train world --model TransE --sampler nscaching --epochs 100 --seed 1 --out runs/x
    """

    where: Where = ""
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
    """Use the literals of RDF files as entities; else triples with a literal are left out."""
    dry_run: bool = False
    """Train nothing: show the memory and disk that the run needs, and whether it fits."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, from which --resume continues; 0: only when it is stopped."""
    resume: str = ""
    """Run folder of an interrupted training run to resume: everything comes from there, but
    --epochs may be more."""
    trust: Trust = False
    json: Json = False
    given: Suppress[tuple[str, ...]] = ()
    """Which settings the command line names."""

    @classmethod
    def defaults(cls, given: Mapping[str, Sequence[str]]) -> Self | None:
        """Return the defaults that --config or --preset gives, if the flags name one of them."""
        paths, names = given.get("config", []), given.get("preset", [])
        if "resume" in given or not (paths or names):
            return None
        if len(paths) + len(names) > 1:
            both = [f"--config {path}" for path in paths] + [f"--preset {name}" for name in names]
            raise UserError(f"{' and '.join(both)} each say all settings: give one of them")
        if names:
            from nscaching.paper import presets

            data, settings = presets.load(*presets.parse(names[0]))
            return cls(where=data, settings=settings)
        from nscaching.runs.settings import read_probes, read_settings

        path = user_path(paths[0])
        source, settings = read_settings(path)
        file = cls(
            where=source.data,
            settings=settings,
            probes=read_probes(path),
            labels=source.labels,
            split_seed=source.split_seed,
            literals=source.literals,
        )
        if "help" not in given:
            return file
        # The help prints the defaults as they are.
        return dataclasses.replace(
            file, **_visible(vars(file)), settings=settings.changed(**_visible(settings.flat()))
        )

    def run(self) -> None:
        """Train with a progress bar, and print the results."""
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.watched_training import train_watched
        from nscaching.runs.folder import default_out

        if self.resume:
            self._resume()
            return
        if self.config and not self.trust:
            typed = dict.fromkeys(self.given, "")  # flags are trust enough
            refuse_outside_code(self.config, self.settings.to_dict() | typed)
        if not self.where:
            raise UserError("say what to train on: a known data set, a folder or a file")
        self._check()
        graph = load_graph(self.where, self._labels(), self.split_seed, self.literals)
        describe_graph(graph)
        self._note_differences(graph)
        out = self.out or default_out(graph, self.settings)
        if self.dry_run:
            self._dry_run(graph, str(out))
            return
        run = train_watched(
            graph,
            self.settings,
            out,
            overwrite=self.overwrite,
            probes=self.probes,
            checkpoint_every=self.checkpoint_every,
        )
        _print_run(run, self.json)

    def _resume(self) -> None:
        """Resume a training run; refuse flags that would make it another one."""
        from nscaching.cli.watched_training import resume_watched

        if self.where:
            raise UserError(f"--resume takes the data from the run folder: leave out {self.where}")
        plain = Train(given=self.given, settings=self.settings)
        changed = [*self.given, *_differing(self, plain), *_differing(self.probes, plain.probes)]
        for name in changed:
            if name not in RESUMABLE | {"probes"}:
                raise UserError(
                    f"--resume takes all settings from the run folder: leave out {as_flag(name)}"
                )
        settings = self.settings.flat()
        given = {name: settings[name] for name in self.given}
        every = self.checkpoint_every
        run = resume_watched(self.resume, self.trust, checkpoint_every=every, **given)
        _print_run(run, self.json)

    def _check(self) -> None:
        """Find mistakes in the settings before the data are loaded."""
        from nscaching.kernels.dispatch import choose_device
        from nscaching.models import MODELS
        from nscaching.runs.folder import RunFolder
        from nscaching.samplers import SAMPLERS
        from nscaching.training.objective import choose_objective

        config = self.settings
        for name in (config.model, config.gan.generator):
            MODELS.get(name)
        SAMPLERS.get(config.sampler)
        choose_objective(config, MODELS.get(config.model))
        choose_device(config.device)
        if self.out:
            RunFolder(self.out).check_free(self.overwrite)
        self.probes.check(config)

    def _labels(self) -> str:
        """Return the file of labels; one that a configuration names is for its own data only."""
        if not self.config:
            return self.labels
        from nscaching.runs.settings import read_settings

        source, _ = read_settings(user_path(self.config))
        others = source.data and self.where != source.data and self.labels == source.labels
        return "" if others else self.labels

    def _note_differences(self, graph: KnowledgeGraph) -> None:
        """Note what keeps the run of a file from coming out the same, or a preset from fitting."""
        from nscaching.paper import presets
        from nscaching.runs.settings import read_record
        from nscaching.training.train import differences

        if self.config:
            file = user_path(self.config)
            for difference in differences(read_record(file), graph, self.settings):
                note(f"note: the run of {file} will not come out the same: its {difference}")
        if self.preset:
            data, tuned = presets.load(*presets.parse(self.preset))
            theirs = f"{tuned.model} on {data}"
            ours = f"{self.settings.model} on {graph.name}"
            if theirs.casefold() != ours.casefold():
                note(f"note: --preset {self.preset} was tuned for {theirs}, not for {ours}")

    def _dry_run(self, graph: KnowledgeGraph, out: str) -> None:
        """Print the memory and disk that training needs; raise an error if they do not suffice."""
        from nscaching.training.memory import Statement

        found = Statement(graph, self.settings, user_path(out), len(self.probes.snapshots))
        print_memory(found, self.json)
        found.check()


def _visible(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts among the values, without characters that a terminal obeys."""
    return {name: visible(value) for name, value in values.items() if isinstance(value, str)}


def _differing(one: object, other: object) -> list[str]:
    """Return the names of the fields in which two dataclasses of one class differ."""
    names = [each.name for each in dataclasses.fields(one)]  # type: ignore[arg-type]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def print_memory(found: Statement, as_json: bool) -> None:
    """Print what a training run would need, and what is available."""
    from nscaching.training.memory import readable

    if as_json:
        print_json(found.to_dict())
        return
    for place in found.places:
        mine = [item for item in found.items if item.place == place]
        rows = [[item.what, readable(item.bytes)] for item in mine]
        available = found.available[place]
        rows.append(["peak", readable(found.peak(place))])
        rows.append(["available", "unknown" if available is None else readable(available)])
        print_table([place, "needs"], rows)
    say("the peak is the sum of all items; of the transient ones only the largest counts")


def _print_run(run: Run, as_json: bool) -> None:
    """Print the results of a training run."""
    from nscaching.runs.layout import REPORT

    figures = summary(run)
    if as_json:
        print_json(figures)
        return
    rows = [[s, *metric_cells(figures[s])] for s in ("valid", "test") if figures[s]]
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    if rows:
        print_table(["split", *HEADINGS.values()], rows, title)
    best = "was best" if figures["valid"] else "was kept"
    say(
        f"epoch {run.best_epoch} of {figures['epochs']} {best}; "
        f"{run.train_seconds:.1f} s of training",
        f"run folder: {run.path}",
    )
    if run.path is not None and (run.path / REPORT).is_file():
        say(f"report: {run.path / REPORT}")
