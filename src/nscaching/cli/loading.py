"""Loading a graph with a progress bar, and saying what was loaded."""

from nscaching.cli.progress import when_slow
from nscaching.cli.tables import note
from nscaching.data import datasets, load
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.errors import counted, user_path


def load_graph(
    where: str, labels: str = "", split_seed: int = 0, literals: bool = False, memory: str = ""
) -> KnowledgeGraph:
    known = datasets.find(where)
    with when_slow(f"loading {where}") as bar:
        if known is not None and not datasets.is_cached(known.name):
            datasets.fetch(
                known.name,
                lambda file, done, of: bar.show(done, of, f"{file}  {done / 1e6:.1f} MB"),
            )
        graph = load.load_graph(where, labels, split_seed, literals, bar.stage, memory, bar.say)
        # Training and ranking need both indices: built here, under the progress bar.
        bar.stage("indexing", 0, 2)
        assert graph.train_keys
        bar.stage("indexing", 1, 2)
        assert graph.filter_index
        return graph


def load_data_or_run(where: str, memory: str) -> KnowledgeGraph:
    """Load data, or the data that a run folder holds."""
    path = user_path(where)
    if not (path / "vocabulary.json").is_file():
        return load_graph(where, memory=memory)
    from nscaching.runs.folder import RunFolder  # here: it imports PyTorch

    folder = RunFolder(path)
    source, _ = folder.read_config(trust=True)  # no class that it names is imported
    return folder.read_graph(source)


def describe_graph(graph: KnowledgeGraph) -> None:
    sizes = " / ".join(f"{len(graph.split(split)):,}" for split in SPLITS)
    entities = counted(len(graph.entities), "entity", "entities")
    names = f"{entities}, {counted(len(graph.relations), 'relation')}"
    note(f"{graph.name}: {names}, {sizes} triples ({' / '.join(SPLITS)})")
    for each in graph.notes:
        note(f"note: {each}")
