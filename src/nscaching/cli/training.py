"""Training with a progress bar: what ``train`` does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nscaching.cli.loading import describe_graph, load_graph
from nscaching.cli.progress import Signals, WatchedTraining
from nscaching.cli.tables import HEADINGS, cells, note, print_json, print_table, say
from nscaching.cli.verbs.compare import summary
from nscaching.cli.verbs.train import Train
from nscaching.config import BY_GRAPH, HINTS, TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, as_flag, user_path
from nscaching.kernels import choose_device
from nscaching.models import MODELS
from nscaching.paper import presets
from nscaching.registry import refuse_outside_code
from nscaching.runs.checkpoints import sharded_in
from nscaching.runs.folder import REPORT, RunFolder, default_out, resume_command, split_name
from nscaching.runs.rising import advice
from nscaching.runs.run import Run
from nscaching.runs.settings import read_record
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective, without_effect
from nscaching.sharded.launch import alone
from nscaching.training.defaults import OF_NEGATIVES, describe, recipe, settings_for
from nscaching.training.fitting import check, place_caches
from nscaching.training.memory import Statement, checkpoints_of
from nscaching.training.sharded import resume_in_shards
from nscaching.training.train import differences, resume, train
from nscaching.units import readable

R = TypeVar("R", bound=Run | None)

# The flags that go with --resume: none of them changes the steps that are done.
RESUMABLE = {"epochs", "device", "kernels", "threads"}
RESUMABLE |= {"resume", "checkpoint_every", "trust", "json"}

# Settings that others are chosen by.
SHAPING = ("objective", "optimizer", "dim", "norm", "epochs", "batch_size")


def watched(work: Callable[..., R], config: TrainConfig, left: str = "; nothing was written") -> R:
    """Train or resume with a progress bar, which ``work`` takes as its listener."""
    name = f"{config.model} {config.sampler}"
    with Signals() as signals, WatchedTraining(name, config, signals, left) as display:
        run = work(listener=display)
        if run is not None:  # which is not a process that another one speaks for
            signals.check(f"stopped; {run.path} is finished")
    return run


def train_run(verb: Train) -> None:
    graph, config, out = prepared(verb)
    if verb.dry_run:
        asked = user_path(out), len(verb.probes.snapshots), checkpoints_of(verb.checkpoint_every)
        needed = Statement(graph, place_caches(graph, config, *asked)[0], *asked)
        print_memory(needed, verb.json)
        check(needed)
        return
    work = partial(train, graph, config, out=out, overwrite=verb.overwrite)
    work = partial(work, probes=verb.probes, checkpoint_every=verb.checkpoint_every)
    print_run(watched(work, config), verb.json)


def prepared(verb: Train) -> tuple[KnowledgeGraph, TrainConfig, str | Path]:
    """Load the data, choose the settings that are left out, and name the run folder."""
    if verb.config and not verb.trust:
        settings = verb.settings.to_dict()  # flags are trust enough
        refuse_outside_code(verb.config, {n: settings[n] for n in settings.keys() - verb.given})
    if not verb.where:
        raise UserError("say what to train on: a known data set, a folder or a file")
    # Mistakes in the settings are found before the data are loaded.
    given = verb.told()
    config = recipe(given)
    MODELS.get(config.gan.generator)
    choose_device(config.device)
    if verb.out:
        RunFolder(verb.out).check_free(verb.overwrite)
    verb.probes.check(config)
    graph = load_graph(verb.where, verb.labels, verb.split_seed, verb.literals, verb.memory)
    describe_graph(graph)
    _note_differences(verb, graph)
    if verb.of_another_model:
        given |= _decided(verb, graph)
    config = _fitting(settings_for(graph, **given), verb, graph)
    if not given.keys() >= set(BY_GRAPH):
        note(f"chosen for this graph: {describe(config)}")
    objective = choose_objective(config, MODELS.get(config.model))
    asking = [as_flag(name) for name in verb.given if name in OF_NEGATIVES - {"sampler"}]
    if asking and objective != "softmax" and not {"sampler", "objective"} & given.keys():
        note(f"note: {asking[0]} asks for negatives one by one; the default is a softmax")
    for name, why in without_effect(config, objective, verb.given).items():
        note(f"note: {as_flag(name)} has no effect with {why}")
    return graph, config, verb.out or default_out(graph, config)


def resume_run(verb: Train) -> None:
    changed, config = to_resume(verb)
    options = {"checkpoint_every": verb.checkpoint_every, **changed}
    left = f"; to resume: {resume_command(verb.resume)}"
    if not sharded_in(RunFolder(verb.resume).checkpoints.folder):
        run = watched(partial(resume, verb.resume, trust=verb.trust, **options), config, left)
        print_run(run, verb.json)
        return
    with alone() as world:  # as one of the several processes that wrote the checkpoint
        again = partial(resume_in_shards, world, verb.resume, trust=verb.trust, **options)
        print_run(watched(again, config, left), verb.json)


def to_resume(verb: Train) -> tuple[dict[str, Any], TrainConfig]:
    """Return the settings that a resumed run changes, and its configuration."""
    if verb.where:
        raise UserError(f"--resume takes the data from the run folder: leave out {verb.where}")
    if others := [as_flag(name) for name in verb.given if name not in RESUMABLE]:
        raise UserError(f"--resume takes all settings from the run folder: leave out {others[0]}")
    changed = verb.chosen(verb.settings.flat())
    _, config = RunFolder(verb.resume).read_config(verb.trust)
    return changed, config.changed(**changed)


def _decided(verb: Train, graph: KnowledgeGraph) -> dict[str, Any]:
    """Return the settings of --config that were not chosen for its model, which is another one."""
    assert verb.ran is not None
    ran, defaults = verb.ran.flat(), TrainConfig().flat()
    told = {name: ran[name] for name in HINTS if name not in BY_GRAPH or name == "sampler"}
    told = {name: value for name, value in told.items() if value != defaults[name]}
    told["model"] = ran["model"]
    for names in (SHAPING, BY_GRAPH):  # others may follow from the first of them
        chosen = settings_for(graph, **told).flat()
        told |= {name: ran[name] for name in names if ran[name] != chosen[name]}
    what = f"what was chosen for {ran['model']} is chosen anew"
    note(f"note: {user_path(verb.config)} is of {ran['model']}: {what}")
    return {name: told[name] for name in told if name not in verb.given}


def _fitting(config: TrainConfig, verb: Train, graph: KnowledgeGraph) -> TrainConfig:
    """Return the settings, with a cache that a small graph can fill."""
    n1, entities = config.cache.n1, len(graph.entities)
    if n1 <= entities or "n1" in verb.given or not SAMPLERS.get(config.sampler).has_cache:
        return config
    fits = max(1, entities // 2)
    note(f"note: {graph.name} has {entities:,} entities: {as_flag('n1')} {fits}, not {n1}")
    return config.changed(n1=fits)


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


def print_run(run: Run | None, as_json: bool) -> None:
    if run is None:  # of a process that another one speaks for
        return
    figures = summary(run)
    if as_json:
        print_json(figures)
        return
    rows = [[split_name(figures[s]), *cells(figures[s])] for s in ("valid", "test") if figures[s]]
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    if rows:
        print_table(["split", *HEADINGS.values()], rows, title)
    best = "best" if figures["valid"] else "kept"
    epoch = f"epoch {run.best_epoch} of {figures['epochs']} was {best}"
    say(f"{epoch}; {run.train_seconds:.1f} s of training", f"run folder: {run.path}")
    if run.path is not None and (run.path / REPORT).is_file():
        say(f"report: {run.path / REPORT}")
    if longer := advice(run):
        say(longer)
