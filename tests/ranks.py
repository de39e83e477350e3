"""Processes that train together, forked from one that has imported everything."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import pickle
import sys
import traceback
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

import nscaching.cli.main
import nscaching.cli.sharded
from nscaching import KnowledgeGraph, TrainConfig
from nscaching.data.index import Side
from nscaching.sharded.world import World
from nscaching.training import sharded
from nscaching.training.shard_trainer import ShardTrainer
from nscaching.training.trainer import Trainer

FORKS = multiprocessing.get_context("forkserver")
# torch._dynamo: the first step of an optimizer imports it.
FORKS.set_forkserver_preload(["nscaching.cli.sharded", "torch._dynamo"])


def _graph():
    random = np.random.default_rng(0)
    triples = np.unique(random.integers((37, 3, 37), size=(190, 3), dtype=np.int32), axis=0)
    random.shuffle(triples)
    parts = dict(zip(("test", "valid", "train"), np.split(triples, (12, 24)), strict=True))
    return KnowledgeGraph.from_arrays([f"e{i}" for i in range(37)], ["r0", "r1", "r2"], parts)


GRAPH = _graph()
SETTINGS = {
    "dim": 6, "epochs": 3, "batch_size": 32, "lr": 0.05, "n1": 5, "n2": 4, "seed": 3,
    "device": "cpu", "kernels": "reference", "threads": 1, "validate_every": 1, "patience": 0,
}  # fmt: skip
SECONDS = 180  # in which ranks end, however busy the machine is


def config(**settings):
    return TrainConfig().changed(**SETTINGS | settings)


@contextlib.contextmanager
def joined(rank, size, folder, seconds=SECONDS):
    """Yield the world of a rank, whose ranks meet through a file."""
    store = dist.FileStore(str(folder / "store"), size)
    patience = timedelta(seconds=seconds)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=patience)
    try:
        yield World(rank, size, store=store)
    finally:
        dist.destroy_process_group()


def start(size, folder, work, *given):
    """Start the ranks of ``work(world, *given)``; return their processes."""
    folder.mkdir(parents=True)
    ranks = [
        FORKS.Process(target=_rank, args=(rank, size, folder, work, given)) for rank in range(size)
    ]
    for each in ranks:
        each.start()
    return ranks


def on_ranks(size, folder, work, *given):
    """Return what ``work(world, *given)`` returns on each rank."""
    ranks = start(size, folder, work, *given)
    for each in ranks:
        each.join(SECONDS)
    said = [(folder / f"{rank}.log").read_text() for rank in range(size)]
    assert [each.exitcode for each in ranks] == [0] * size, "\n".join(said)
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(size)]


def _rank(rank, size, folder, work, given):
    torch.set_num_threads(1)
    with (folder / f"{rank}.log").open("w") as log, contextlib.redirect_stderr(log):
        try:
            with joined(rank, size, folder) as world:
                result = work(world, *given)
            (folder / f"{rank}.pickle").write_bytes(pickle.dumps(result))
        except BaseException:
            traceback.print_exc(file=log)
            raise


def command(rank, size, port, words, folder, **environment):
    """Run the command line as one of the processes that torchrun would start."""
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "LOCAL_RANK": str(rank), **environment,
    }  # fmt: skip
    torch.set_num_threads(1)
    with (folder / f"{rank}.log").open("w", buffering=1) as log:
        sys.stdout = sys.stderr = log
        nscaching.cli.main.main([*words])


def steps(world, settings, count=4):
    """Return tables, cached rows, figures and ranks after some steps of an epoch."""
    trainer = ShardTrainer(world, GRAPH, config(**settings))
    path = "numba" if "numba" in settings.values() else "plain"
    assert f"{path} kernels" in trainer.plan()
    for size in [*trainer.triples.sizes(trainer.config.batch_size)][:count]:
        trainer.step(size)
    state, own = trainer.model.state_dict(), trainer.shards.own_entities()
    cache = trainer.sampler.cache
    rows = {} if cache is None else {s: (c.number, c.ids) for s, c in cache.sides.items()}
    ranks = trainer.rank("valid", 1), trainer.ranks["valid"]
    return state, own, rows, trainer.meter.sums, ranks


def steps_of_all(world, cases):
    return [steps(world, settings) for settings in cases]


def steps_of_one(settings, count=4):
    """Return the twin of ``steps``: a trainer after the steps of one process."""
    trainer = Trainer(GRAPH, config(**settings))
    for size in [*trainer.triples.sizes(trainer.config.batch_size)][:count]:
        trainer.step(size)
    return trainer


def train(world, out, settings, every=0.0):
    """Train, or go on where the folder says so; what a restarted process does too."""
    if (out / "config.toml").exists():
        sharded.resume_in_shards(world, out, checkpoint_every=every)
    else:
        sharded.train_in_shards(world, GRAPH, config(**settings), out, checkpoint_every=every)


def traffic(world, cases):
    """Return for each case the bytes sent for a triple, by kind, and the different keys of it."""
    graph, found = KnowledgeGraph.load("world"), []
    for settings in cases:
        asked = config(**settings, batch_size=512)
        trainer = ShardTrainer(world, graph, asked)
        world.take_traffic()
        keys, again = 0, copy.copy(trainer.triples)
        again.taken = again.taken.clone()
        for _ in range(8):
            trainer.step(512)
            _, batch = again.take(512)
            keys += sum(len(batch.key(side).unique()) for side in Side) / (8 * 512)
        sent = world.take_traffic()
        bytes_of_triple = {kind: each["bytes"] / (8 * 512) for kind, each in sent.items()}
        found.append((bytes_of_triple, trainer.traffic(keys)))
    return found


def resume_by(world, out, kernels):
    sharded.resume_in_shards(world, out, kernels=kernels)
