"""Loads a graph for a verb: progress, and a description of the graph on standard error."""

from nscaching.cli.progress import Bar, when_slow
from nscaching.cli.tables import note
from nscaching.data import datasets
from nscaching.data.graph import SPLITS, KnowledgeGraph


def load_graph(
    where: str, labels: str = "", split_seed: int = 0, literals: bool = False
) -> KnowledgeGraph:
    """Load a graph; show a download, and progress if loading takes long."""
    known = datasets.find(where)
    if known is not None and not datasets.is_cached(known.name):
        with Bar(known.name) as bar:
            datasets.fetch(
                known.name,
                lambda file, done, of: bar.show(done, of, f"{file}  {done / 1e6:.1f} MB"),
            )
    with when_slow(f"loading {where}") as bar:
        graph = KnowledgeGraph.load(where, labels, split_seed, literals, bar.stage)
        # Training and ranking need both indices: built here, under the progress bar.
        bar.stage("indexing", 0, 2)
        assert graph.train_keys
        bar.stage("indexing", 1, 2)
        assert graph.filter_index
        return graph


def describe_graph(graph: KnowledgeGraph) -> None:
    """Print the sizes of a graph and the notes of its reader on standard error."""
    sizes = " / ".join(f"{len(graph.split(split)):,}" for split in SPLITS)
    note(
        f"{graph.name}: {len(graph.entities):,} entities, {len(graph.relations):,} relations, "
        f"{sizes} triples ({' / '.join(SPLITS)})"
    )
    for each in graph.notes:
        note(f"note: {each}")
