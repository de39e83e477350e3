"""Loading a graph and training, with a progress bar: what ``train`` does."""

from collections.abc import Callable
from functools import partial

from nscaching.cli.progress import Signals, WatchedTraining, when_slow
from nscaching.cli.tables import HEADINGS, cells, note, print_json, print_table, say
from nscaching.cli.verbs.compare import summary
from nscaching.cli.verbs.train import Train
from nscaching.config import TrainConfig
from nscaching.data import datasets
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.errors import UserError, as_flag, counted, user_path
from nscaching.kernels import choose_device
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.registry import refuse_outside_code
from nscaching.runs.folder import REPORT, RunFolder, default_out, resume_command
from nscaching.runs.run import Run
from nscaching.runs.settings import read_record
from nscaching.training.memory import Statement, readable
from nscaching.training.objective import choose_objective
from nscaching.training.train import differences, resume, train

# The flags that go with --resume: none of them changes the steps that are done.
RESUMABLE = {"epochs", "device", "kernels", "threads"}
RESUMABLE |= {"resume", "checkpoint_every", "trust", "json"}


def load_graph(
    where: str, labels: str = "", split_seed: int = 0, literals: bool = False
) -> KnowledgeGraph:
    known = datasets.find(where)
    with when_slow(f"loading {where}") as bar:
        if known is not None and not datasets.is_cached(known.name):
            datasets.fetch(
                known.name,
                lambda file, done, of: bar.show(done, of, f"{file}  {done / 1e6:.1f} MB"),
            )
        graph = KnowledgeGraph.load(where, labels, split_seed, literals, bar.stage)
        # Training and ranking need both indices: built here, under the progress bar.
        bar.stage("indexing", 0, 2)
        assert graph.train_keys
        bar.stage("indexing", 1, 2)
        assert graph.filter_index
        return graph


def describe_graph(graph: KnowledgeGraph) -> None:
    sizes = " / ".join(f"{len(graph.split(split)):,}" for split in SPLITS)
    entities = counted(len(graph.entities), "entity", "entities")
    names = f"{entities}, {counted(len(graph.relations), 'relation')}"
    note(f"{graph.name}: {names}, {sizes} triples ({' / '.join(SPLITS)})")
    for each in graph.notes:
        note(f"note: {each}")


def watched(
    work: Callable[..., Run], config: TrainConfig, left: str = "; nothing was written"
) -> Run:
    """Train or resume with a progress bar, which ``work`` takes as its listener."""
    name = f"{config.model} {config.sampler}"
    with Signals() as signals, WatchedTraining(name, config, signals, left) as display:
        run = work(listener=display)
        signals.check(f"stopped; {run.path} is finished")
    return run


def train_run(verb: Train) -> None:
    if verb.config and not verb.trust:
        settings = verb.settings.to_dict()  # flags are trust enough
        refuse_outside_code(verb.config, {n: settings[n] for n in settings.keys() - verb.given})
    if not verb.where:
        raise UserError("say what to train on: a known data set, a folder or a file")
    # Mistakes in the settings are found before the data are loaded.
    config = verb.settings
    MODELS.get(config.gan.generator)
    choose_objective(config, MODELS.get(config.model))
    choose_device(config.device)
    if verb.out:
        RunFolder(verb.out).check_free(verb.overwrite)
    verb.probes.check(config)
    graph = load_graph(verb.where, verb.labels, verb.split_seed, verb.literals)
    describe_graph(graph)
    _note_differences(verb, graph)
    out = verb.out or default_out(graph, config)
    if verb.dry_run:
        needed = Statement(graph, config, user_path(out), len(verb.probes.snapshots))
        print_memory(needed, verb.json)
        needed.check()
        return
    work = partial(train, graph, config, out=out, overwrite=verb.overwrite)
    work = partial(work, probes=verb.probes, checkpoint_every=verb.checkpoint_every)
    _print_run(watched(work, config), verb.json)


def resume_run(verb: Train) -> None:
    if verb.where:
        raise UserError(f"--resume takes the data from the run folder: leave out {verb.where}")
    if others := [as_flag(name) for name in verb.given if name not in RESUMABLE]:
        raise UserError(f"--resume takes all settings from the run folder: leave out {others[0]}")
    changed = verb.chosen(verb.settings.flat())
    _, config = RunFolder(verb.resume).read_config(verb.trust)
    options = {"trust": verb.trust, "checkpoint_every": verb.checkpoint_every, **changed}
    work = partial(resume, verb.resume, **options)
    left = f"; to resume: {resume_command(verb.resume)}"
    _print_run(watched(work, config.changed(**changed), left), verb.json)


def _note_differences(verb: Train, graph: KnowledgeGraph) -> None:
    if verb.config:
        file = user_path(verb.config)
        for difference in differences(read_record(file), graph, verb.settings):
            note(f"note: the run of {file} will not come out the same: its {difference}")
    if verb.preset:
        data, tuned = presets.load(*presets.parse(verb.preset))
        theirs = f"{tuned.model} on {data}"
        ours = f"{verb.settings.model} on {graph.name}"
        if theirs.casefold() != ours.casefold():
            note(f"note: --preset {verb.preset} was tuned for {theirs}, not for {ours}")


def print_memory(found: Statement, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
        return
    for place in found.places:
        rows = [[i.what, readable(i.bytes)] for i in found.items if i.place == place]
        available = found.available[place]
        rows.append(["peak", readable(found.peak(place))])
        rows.append(["available", "unknown" if available is None else readable(available)])
        print_table([place, "needs"], rows)
    say("the peak is the sum of all items; of the transient ones only the largest counts")


def _print_run(run: Run, as_json: bool) -> None:
    figures = summary(run)
    if as_json:
        print_json(figures)
        return
    rows = [[s, *cells(figures[s])] for s in ("valid", "test") if figures[s]]
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    if rows:
        print_table(["split", *HEADINGS.values()], rows, title)
    best = "best" if figures["valid"] else "kept"
    epoch = f"epoch {run.best_epoch} of {figures['epochs']} was {best}"
    say(f"{epoch}; {run.train_seconds:.1f} s of training", f"run folder: {run.path}")
    if run.path is not None and (run.path / REPORT).is_file():
        say(f"report: {run.path / REPORT}")
