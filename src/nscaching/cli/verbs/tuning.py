"""The verb ``tune``: a search for good settings."""

from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes, Suppress

from nscaching.cli.verbs._base import Json, Memory, Settings, Trust, Where
from nscaching.tuning import require_optuna


@dataclass(frozen=True)
class Tune:
    """Search for good settings by validation MRR; the same command again continues.

    nscaching tune world --model TransE --space paper --trials 50 --epochs 100 --seed 1
    """

    where: Where
    settings: OmitArgPrefixes[Settings] = field(default_factory=Settings)
    space: str = "paper"
    """What is tuned: paper (its grid), wide, or FILE.toml with lines such as lr = [0.001, 0.01] and
    margin = {low = 1, high = 12, log = true}. A flag of training fixes its setting."""
    trials: int = 50
    """Trials in all, with the earlier trials of the folder."""
    processes: int = 0
    """Trials at the same time, a process each; 0: one for each visible GPU, or one on a CPU."""
    out: str = ""
    """Folder of the search; empty: tuning/ and a name by data, model, sampler and space."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Use the literals of RDF files as entities; else triples with a literal are left out."""
    memory: Memory = ""
    trust: Trust = False
    json: Json = False
    given: Suppress[tuple[str, ...]] = ()  # which settings the command line names

    def run(self) -> None:
        require_optuna()
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.tuning_display import TuningDisplay, show_space, show_tuning
        from nscaching.tuning.result import PLOT, default_out
        from nscaching.tuning.search import Search

        settings = self.settings.flat()
        fixed = {name: settings[name] for name in self.given}
        search = Search(
            self.space, fixed, self.trials, self.out or None, self.trust, self.processes
        )
        graph = load_graph(self.where, self.labels, self.split_seed, self.literals, self.memory)
        describe_graph(graph)
        show_space(search.space)
        out = search.out = search.out or default_out(graph, search.config, self.space)
        with TuningDisplay(f"{search.config.model} {search.config.sampler}") as display:
            try:
                tuning = search.run(graph, display)
            except KeyboardInterrupt:
                display.stopped(out)
                raise
        tuning.plot(out / PLOT)
        show_tuning(tuning, self.json)
