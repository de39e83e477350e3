"""The tables of a model in shards: how they start, and how they become whole again."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Generator, Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.kernels.shards import Shards
from nscaching.models import MODELS, Model
from nscaching.models.arithmetic import PIECE, start_uniformly
from nscaching.sharded.world import World


def is_sharded(table: str) -> bool:
    """Say whether a table, by its name, has a row for each entity."""
    return table.startswith("entity")


def new_model(
    graph: KnowledgeGraph, config: TrainConfig, shards: Shards, device: torch.device, seed: int
) -> Model:
    """Build the model of this rank's entities, with the rows that one process would start with."""
    relations = len(graph.relations) * (2 if config.reciprocal else 1)
    kind = MODELS.get(config.model)
    with device if kind.starts_anywhere() else torch.device("cpu"):
        model = kind(len(shards), relations, config.dim, config.norm)
    model.reciprocal = config.reciprocal
    model.prepare(graph.with_inverses() if model.reciprocal else graph)
    own = [table for name, table in model.named_parameters() if is_sharded(name)]
    model.start_table = partial(_start, shards, own)
    model.reset(Generator().manual_seed(seed))
    return model.to(device)


@torch.no_grad()
def _start(
    shards: Shards, own: Sequence[Tensor], table: Tensor, generator: Generator | None
) -> None:
    if generator is None or not any(table is each for each in own):
        start_uniformly(table, generator)
        return
    rows, size = shards.entities, table.shape[1]
    bound = math.sqrt(3.0) * math.sqrt(2.0 / float(rows + size))  # Xavier's, of the whole table
    at_once = max(1, PIECE // size)
    for first in range(0, rows, at_once):
        entity = torch.arange(first, min(first + at_once, rows))
        drawn = torch.empty(len(entity), size).uniform_(-bound, bound, generator=generator)
        mine = shards.mine(entity)
        place = shards.place(entity[mine]).to(table.device)
        table.index_copy_(0, place, drawn[mine].to(table.device))


def take_own(tables: Mapping[str, Tensor], shards: Shards) -> dict[str, Tensor]:
    """Return the part of whole tables that a rank owns."""
    own = shards.own_entities()
    return {name: t[own] if is_sharded(name) else t for name, t in tables.items()}


def gather(model: Model, shards: Shards, world: World) -> dict[str, Tensor]:
    """Return the whole tables on the leading rank, in host memory; elsewhere an empty mapping."""
    whole: dict[str, Tensor] = {}
    for name, table in model.state_dict().items():
        if not is_sharded(name):
            whole[name] = table.cpu()
            continue
        if world.leads:
            whole[name] = torch.empty(shards.entities, *table.shape[1:], dtype=table.dtype)
        for rank in range(world.size):
            for block in Shards(shards.entities, world.size, rank).own_blocks:
                size = shards.block_start(block + 1) - shards.block_start(block)
                mine = table[shards.own_rows(block)] if rank == world.rank else None
                rows = world.bring(mine, table.new_empty(size, *table.shape[1:]), rank)
                if rows is not None:
                    whole[name][block :: shards.blocks] = rows.cpu()
    return whole if world.leads else {}
