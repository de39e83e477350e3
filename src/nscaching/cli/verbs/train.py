"""The verb ``train``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tyro.conf import OmitArgPrefixes, Suppress

from nscaching.cli.tables import HEADINGS, cells, note, print_json, print_table, say
from nscaching.cli.verbs._base import Json, Run, Trust, Where
from nscaching.cli.verbs.compare import summary
from nscaching.config import TrainConfig
from nscaching.errors import UserError, as_flag, user_path
from nscaching.probes import ProbeConfig
from nscaching.registry import refuse_outside_code

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph
    from nscaching.training.memory import Statement

# The flags that go with --resume: none of them changes the steps that are done.
RESUMABLE = {
    "resume",
    "epochs",
    "checkpoint_every",
    "device",
    "kernels",
    "threads",
    "trust",
    "json",
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
    """The flags of the command line, spelled as fields."""

    def with_flags(self, given: Sequence[str]) -> Self:
        """Take from --config or --preset what the given flags do not say."""
        flags = dataclasses.replace(self, given=tuple(given))
        if self.resume or not (self.config or self.preset):
            return flags
        if given.count("config") + given.count("preset") > 1:
            raise UserError("--config and --preset each say all settings: give one of them, once")
        file = self._read_file()
        if file.where and self.where not in ("", file.where):
            file = dataclasses.replace(file, labels="")  # which are of other data
        taken = {name: getattr(file, name) for name in ("labels", "split_seed", "literals")}
        return dataclasses.replace(
            flags,
            where=self.where or file.where,
            settings=file.settings.changed(**_chosen(given, self.settings.flat())),
            probes=dataclasses.replace(file.probes, **_chosen(given, self.probes.to_dict())),
            **{name: value for name, value in taken.items() if name not in given},
        )

    def _read_file(self) -> Train:
        from nscaching.paper import presets
        from nscaching.runs.settings import read_probes, read_settings

        if self.preset:
            return Train(*presets.load(*presets.parse(self.preset)))
        path = user_path(self.config)
        source, settings = read_settings(path)
        found = dataclasses.asdict(source)
        return Train(found.pop("data"), settings, read_probes(path), **found)

    def run(self) -> None:
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.watched_training import watched
        from nscaching.runs.folder import default_out
        from nscaching.training.train import train

        if self.resume:
            self._resume()
            return
        if self.config and not self.trust:
            settings = self.settings.to_dict()  # flags are trust enough
            refuse_outside_code(self.config, {n: settings[n] for n in settings.keys() - self.given})
        if not self.where:
            raise UserError("say what to train on: a known data set, a folder or a file")
        self._check()
        graph = load_graph(self.where, self.labels, self.split_seed, self.literals)
        describe_graph(graph)
        self._note_differences(graph)
        out = self.out or default_out(graph, self.settings)
        if self.dry_run:
            self._dry_run(graph, str(out))
            return
        work = partial(train, graph, self.settings, out=out, overwrite=self.overwrite)
        work = partial(work, probes=self.probes, checkpoint_every=self.checkpoint_every)
        _print_run(watched(work, self.settings), self.json)

    def _resume(self) -> None:
        """Resume a training run; refuse flags that would make it another one."""
        from nscaching.cli.watched_training import watched
        from nscaching.runs.folder import RunFolder, resume_command
        from nscaching.training.train import resume

        if self.where:
            raise UserError(f"--resume takes the data from the run folder: leave out {self.where}")
        for name in self.given:
            if name not in RESUMABLE:
                raise UserError(
                    f"--resume takes all settings from the run folder: leave out {as_flag(name)}"
                )
        changed = _chosen(self.given, self.settings.flat())
        _, config = RunFolder(self.resume).read_config(self.trust)
        options = {"trust": self.trust, "checkpoint_every": self.checkpoint_every, **changed}
        run = watched(
            partial(resume, self.resume, **options),
            config.changed(epochs=changed.get("epochs", config.epochs)),
            f"; to resume: {resume_command(self.resume)}",
        )
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
        from nscaching.training.memory import Statement, refusal

        found = Statement(graph, self.settings, user_path(out), len(self.probes.snapshots))
        print_memory(found, self.json)
        if reason := refusal(found):
            raise UserError(reason)


def _chosen(names: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


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
    rows = [[s, *cells(figures[s])] for s in ("valid", "test") if figures[s]]
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
