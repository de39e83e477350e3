"""The verb that searches for good settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, Suppress, arg

from nscaching.cli.verbs._base import Json, Trust
from nscaching.config import TrainConfig
from nscaching.errors import user_path

__all__ = ["Tune"]


@dataclass(frozen=True)
class Tune:
    """Search for good settings by validation MRR; the same command again goes on.

    nscaching tune world --model TransE --space paper --trials 50 --epochs 100 --seed 1
    """

    where: Annotated[
        Positional[str],
        arg(metavar="WHERE", help="A known data set, a folder with train/valid/test, or a file."),
    ]
    settings: OmitArgPrefixes[TrainConfig] = field(
        default_factory=lambda: TrainConfig(epochs=100)  # as nscaching.tune
    )
    space: str = "paper"
    """What is tuned: paper (its grid), wide, or FILE.toml with lines such as lr = [0.001, 0.01] and
    margin = {low = 1, high = 12, log = true}. A flag of training fixes its setting."""
    trials: int = 50
    """Trials in all, those of before too."""
    out: str = ""
    """Folder of the search; empty: tuning/ and a name by data, model, sampler and space."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Take the literals of RDF files for entities, too; else triples with one are left out."""
    trust: Trust = False
    json: Json = False
    given: Suppress[tuple[str, ...]] = ()
    """Which settings the command line names."""

    def run(self) -> None:
        """Search, showing progress, and print what was found."""
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.tuning import check_search, tune

        fixed = {name: getattr(self.settings, name) for name in self.given}
        config, space = check_search(self.space, fixed, self.trials, self.trust)
        from nscaching.cli import show_tuning  # it needs optuna
        from nscaching.cli.tuning_display import TuningDisplay
        from nscaching.tuning.result import PLOT, default_out
        from nscaching.tuning.study import StudyFolder

        if self.out:
            StudyFolder(user_path(self.out)).check()
        graph = load_graph(self.where, self.labels, self.split_seed, self.literals)
        describe_graph(graph)
        show_tuning.space(space)
        out = user_path(self.out) if self.out else default_out(graph, config, self.space)
        with TuningDisplay(f"{config.model} {config.sampler}") as display:
            try:
                tuning = tune(
                    graph, self.space, self.trials,
                    out=out, trust=self.trust, watch=display, **fixed,
                )  # fmt: skip
            except KeyboardInterrupt:
                display.stopped(out)
                raise
        tuning.plot(out / PLOT)
        show_tuning.tuning(tuning, self.json)
