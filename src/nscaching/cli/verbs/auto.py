"""The verb ``auto``: the best of several models within a time limit."""

from dataclasses import dataclass
from typing import Literal

from nscaching.cli.verbs._base import Json, Memory, Where


@dataclass(frozen=True)
class Auto:
    """Find a good model within minutes: one run, a leaderboard, a page; the same command continues.

    nscaching auto world --minutes 5
    """

    where: Where
    minutes: float = 5.0
    """Time limit, with the minutes of earlier commands in the same folder."""
    out: str = ""
    """Folder of the search; empty: auto/ and the name of the data."""
    seed: int = 0
    """Seed of everything random."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes CUDA when it is there."""
    threads: int = 0
    """CPU threads; 0: as many as PyTorch chooses."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Use the literals of RDF files as entities; else triples with a literal are left out."""
    memory: Memory = ""
    json: Json = False

    def run(self) -> None:
        from nscaching.automatic.journal import check_folder, default_out
        from nscaching.automatic.search import auto, check_minutes
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.show_auto import AutoDisplay, show_auto
        from nscaching.errors import user_path

        check_minutes(self.minutes)
        if self.out:
            check_folder(user_path(self.out))
        graph = load_graph(self.where, self.labels, self.split_seed, self.literals, self.memory)
        describe_graph(graph)
        out = self.out or default_out(graph)
        with AutoDisplay(graph.name) as display:
            result = auto(
                graph,
                self.minutes,
                out=out,
                seed=self.seed,
                device=self.device,
                threads=self.threads,
                watch=display,
            )
        show_auto(result, self.json)
