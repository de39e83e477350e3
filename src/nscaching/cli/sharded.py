"""Training by several processes of torchrun: what the leading one does for the others."""

from functools import partial
from pathlib import Path

from nscaching.cli import training
from nscaching.cli.tables import note
from nscaching.cli.verbs.train import Train
from nscaching.errors import UserError, as_flag, user_path
from nscaching.runs.folder import RunFolder
from nscaching.runs.settings import CONFIG
from nscaching.sharded.torchrun import restarts
from nscaching.sharded.world import World
from nscaching.training.sharded import resume_in_shards, train_in_shards

# Flags of train that one process alone obeys.
ALONE = ("dry_run", "overwrite")


def train_together(verb: Train, world: World) -> None:
    """Train, resume, or go on after torchrun has restarted the processes."""
    _check(verb)
    again = user_path(verb.resume) if verb.resume else world.own_run()
    every = verb.checkpoint_every
    if again is not None and (again / CONFIG).is_file():
        if not verb.resume and RunFolder(again).finished:  # and killed as it ended
            note(f"{again} is finished")
            return
        if verb.resume:
            changed, config = training.to_resume(verb)
        else:  # restarted
            changed, config = {}, RunFolder(again).read_config(trust=True)[1]
        trust = verb.trust or not verb.resume  # what runs was named by the flags
        work = partial(resume_in_shards, world, again, trust=trust, checkpoint_every=every)
        work, left = partial(work, **changed), f"; {again} is as it was"
    else:
        if not world.leads:
            world.meet("the data are there")  # one process downloads and reads first
        graph, config, out = training.prepared(verb)
        if world.leads:
            world.meet("the data are there")
        world.meet("the data are read")
        path: Path = world.gather(user_path(out))[0]
        work = partial(train_in_shards, world, graph, config, path, checkpoint_every=every)
        left = ""
    training.print_run(training.watched(work, config, left), verb.json)


def _check(verb: Train) -> None:
    _, most = restarts()
    if most and not (verb.out or verb.resume):
        raise UserError(
            "--max-restarts of torchrun needs --out: restarted processes find the run there"
        )
    alone = [name for name in ALONE if getattr(verb, name)]
    alone += [name for name in ("probe_test", "snapshots") if getattr(verb.probes, name)]
    if alone or verb.probes.on:
        name = as_flag(alone[0]) if alone else "what --probe flags measure"
        raise UserError(f"{name} is for one process: leave out torchrun")
