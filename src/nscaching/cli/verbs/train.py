"""The flags of the verb ``train``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tyro.conf import OmitArgPrefixes, Suppress

from nscaching.cli.verbs._base import Json, Memory, Settings, Trust, Where
from nscaching.config import HINTS, TrainConfig
from nscaching.errors import UserError, user_path
from nscaching.probes import ProbeConfig


@dataclass(frozen=True)
class Train:
    """Train an embedding and write a run folder.

    nscaching train world --model TransE --seed 1 --out runs/x
    """

    where: Where = ""
    settings: OmitArgPrefixes[Settings] = field(default_factory=Settings)
    probes: OmitArgPrefixes[ProbeConfig] = field(default_factory=ProbeConfig)
    out: str = ""
    """Run folder to write; empty: a new one under runs/."""
    overwrite: bool = False
    """Replace the run folder if it exists."""
    config: str = ""
    """TOML file of settings, such as a run's config.toml; flags win over it."""
    preset: str = ""
    """Data and settings by name, tuned for the cache; NAME:paper: under Bernoulli sampling;
    NAME:best: with the softmax. Flags win over it; nscaching presets lists them."""
    plain: bool = False
    """Choose nothing for the graph: what is left out has the value of nscaching.TrainConfig()."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Use the literals of RDF files as entities; else triples with a literal are left out."""
    memory: Memory = ""
    dry_run: bool = False
    """Train nothing: show the memory and disk that the run needs, and whether it fits."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, from which --resume continues; 0: only when it is stopped."""
    resume: str = ""
    """Run folder of an interrupted training run to resume: everything comes from there, but
    --epochs may be more."""
    trust: Trust = False
    json: Json = False
    given: Suppress[tuple[str, ...]] = ()  # the flags of the command line, spelled as fields
    filed: Suppress[tuple[str, ...]] = ()  # the settings that --config or --preset names
    ran: Suppress[TrainConfig | None] = None  # the settings of the run that wrote --config

    def with_flags(self, given: Sequence[str]) -> Self:
        """Take from --config or --preset what the given flags do not say."""
        settings = TrainConfig().changed(**self.settings.flat())
        filed = tuple(HINTS) if self.plain else ()
        flags = dataclasses.replace(self, settings=settings, given=tuple(given), filed=filed)
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
            settings=file.settings.changed(**flags.chosen(self.settings.flat())),
            filed=flags.filed or file.filed,
            ran=file.ran,
            probes=dataclasses.replace(file.probes, **flags.chosen(self.probes.to_dict())),
            **{name: value for name, value in taken.items() if name not in given},
        )

    def _read_file(self) -> Train:
        from nscaching.paper import presets
        from nscaching.runs.settings import read_probes, read_record, read_values

        if self.preset:
            return Train(*presets.load(*presets.parse(self.preset)), filed=tuple(HINTS))
        path = user_path(self.config)
        source, values = read_values(path)
        found, settings = dataclasses.asdict(source), TrainConfig.from_dict(values, str(path))
        data, probes = found.pop("data"), read_probes(path)
        # The file of a run leaves nothing to choose: what it does not name was open.
        ran = settings if read_record(path) else None
        filed = tuple(HINTS) if ran else tuple(values)
        return Train(data, settings, probes, **found, filed=filed, ran=ran)

    def run(self) -> None:
        from nscaching.cli import sharded, training
        from nscaching.sharded.launch import launched

        with launched() as world:
            if world is not None:
                sharded.train_together(self, world)
            elif self.resume:
                training.resume_run(self)
            else:
                training.train_run(self)

    def chosen(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in self.given if name in values}

    def told(self) -> dict[str, Any]:
        """Return the settings that flags or a file name: others are chosen for the graph."""
        settings = self.settings.flat()
        filed = () if self.of_another_model else self.filed  # which is then asked with the graph
        return {name: settings[name] for name in HINTS if name in (*self.given, *filed)}

    @property
    def of_another_model(self) -> bool:
        """Whether --config is of a run of another model than --model."""
        return self.ran is not None and self.ran.model.casefold() != self.settings.model.casefold()
