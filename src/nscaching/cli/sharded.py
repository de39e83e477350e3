"""Training by several processes of torchrun: what the leading one does for the others."""

from functools import partial
from pathlib import Path

from nscaching.cli import training
from nscaching.cli.verbs.train import Train
from nscaching.errors import UserError, as_flag, user_path
from nscaching.runs.settings import CONFIG
from nscaching.sharded.torchrun import restarts
from nscaching.sharded.world import World
from nscaching.training.sharded import resume_in_shards, train_in_shards

# Flags of train that one process alone obeys.
ALONE = ("dry_run", "overwrite")


def train_together(verb: Train, world: World) -> None:
    """Train, resume, or go on after torchrun has restarted the processes."""
    _check(verb)
    count, _ = restarts()
    begun = count > 0 and (user_path(verb.out) / CONFIG).is_file()
    if verb.resume or begun:
        changed, config = training.to_resume(verb) if verb.resume else ({}, verb.settings)
        work = partial(resume_in_shards, world, verb.resume or verb.out, trust=verb.trust)
        work = partial(work, checkpoint_every=verb.checkpoint_every, **changed)
        left = f"; {verb.resume or verb.out} is as it was"
    else:
        if not world.leads:
            world.wait()  # one process downloads and reads first
        graph, config, out = training.prepared(verb)
        if world.leads:
            world.wait()
        path: Path = world.gather(user_path(out))[0]
        work = partial(train_in_shards, world, graph, config, path)
        work, left = partial(work, checkpoint_every=verb.checkpoint_every), ""
    training.print_run(training.watched(work, config, left), verb.json)


def _check(verb: Train) -> None:
    _, most = restarts()
    if most and not (verb.out or verb.resume):
        raise UserError(
            "--max-restarts of torchrun needs --out: restarted processes find the run there"
        )
    alone = [name for name in ALONE if getattr(verb, name)]
    alone += ["validate_candidates"] if verb.settings.validate_candidates else []
    alone += [name for name in ("probe_test", "snapshots") if getattr(verb.probes, name)]
    if alone or verb.probes.on:
        name = as_flag(alone[0]) if alone else "what --probe flags measure"
        raise UserError(f"{name} is for one process: leave out torchrun")
