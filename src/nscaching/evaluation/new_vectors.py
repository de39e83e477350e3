"""Vectors of new entities, fitted against the frozen vectors of a trained model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids
from nscaching.errors import DIVERGED, Diverged
from nscaching.evaluation.fact_losses import SmallModel, entity_tables, fact_losses, like, rivals_of
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.kernels.learner import cubes
from nscaching.models import Model
from nscaching.samplers.objective import penalty

BATCH = 256  # facts in one step
STEPS, PASSES = 200, 10  # at least
KNOWN = 5000  # training facts, whose answers new entities compete with
RATE = 0.1  # first step of Adam, as a share of the usual size of a number of the table

Tables = Mapping[str, Tensor]  # by name
Group = tuple[Tensor, int]  # entities of the copy, and how many of all entities they stand for


def fit_new(
    model: Model,
    config: TrainConfig,
    graph: KnowledgeGraph,
    facts: Ids,
    new: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Model:
    """Return the model with ``new`` more entities, their vectors fitted to facts [n, 3].

    The loss is that of the run, over the facts that name a new entity and over training facts,
    whose answers the new entities compete with; only the new rows move. They start at the mean of
    the entities that stand on the same side of the same relations.
    """
    grown = _grown(model, graph, facts, new)
    facts = facts[(facts[:, [0, 2]] >= model.entities).any(1)]
    random = np.random.default_rng(seed)
    known = graph.train[random.permutation(len(graph.train))[:KNOWN]]
    small = SmallModel.around(grown, np.concatenate([facts, known]), torch.float32, seed)
    tables = {name: small.model.get_parameter(name) for name in entity_tables(model)}
    first = len(small.entities) - new  # of the new ones, which have the last ids
    everyone = torch.arange(len(small.entities))
    groups = [(everyone[first:], new), (everyone[:first], model.entities)]
    with torch_settings(1):  # steps are small: threads would wait for each other
        parts = Part(small, facts, len(facts)), Part(small, known, len(graph.train))
        _descend(small.model, config, parts, tables, groups, seed, progress)
    with torch.no_grad():
        for name, table in tables.items():
            if not table.isfinite().all():
                raise Diverged(DIVERGED)
            rows_of_new = grown.get_parameter(name)
            rows_of_new[model.entities :] = table[first:].to(rows_of_new.device)
    return grown


class NewRows(TorchFunctionMode):
    """Looks up rows of tables so that gradients reach the last rows alone.

    The gradient of a table is as large as the table, and there is one for each look-up. A model
    that reads a table in another way than by ``F.embedding`` is found out: ``missed``.
    """

    def __init__(self, tables: Tables, first: int) -> None:
        super().__init__()
        self.first, self.missed = first, False
        self.new = {id(t): t[first:].detach().clone().requires_grad_() for t in tables.values()}

    def __torch_function__(
        self,
        function: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if function is F.embedding and (new := self.new.get(id(args[1]))) is not None:
            ids, table = args
            rows, is_new = F.embedding(ids, table), ids >= self.first
            if not is_new.any():
                return rows
            of_new = F.embedding((ids - self.first).clamp(min=0), new)
            return torch.where(is_new.unsqueeze(-1), of_new, rows)
        found = function(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.is_floating_point():
            self.missed |= any(id(argument) in self.new for argument in args)
        return found


class Part:
    """Facts that stand for ``count`` facts of the loss, drawn in a seeded order."""

    def __init__(self, small: SmallModel, facts: Ids, count: int) -> None:
        self.columns, self.count = small.columns(facts), count
        self.size = min(BATCH, len(facts))
        self.order = torch.empty(0, dtype=torch.int64)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        if len(self.order) < self.size:
            self.order = torch.randperm(len(self.columns[0]), generator=generator)
        rows, self.order = self.order[: self.size], self.order[self.size :]
        head, relation, tail = (column[rows] for column in self.columns)
        return head, relation, tail


def _descend(
    model: Model,
    config: TrainConfig,
    parts: tuple[Part, Part],
    tables: Tables,
    groups: list[Group],
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Move the new rows of tables down the loss of new facts and of known ones."""
    new, known = parts
    rows = NewRows(tables, len(groups[1][0]))
    with rows, torch.no_grad():
        head, relation, tail = (column[:1] for column in new.columns)
        fact_losses(model, config, (head, relation, tail), groups[0][0])
    whole = rows.missed
    moved = {n: t.requires_grad_() if whole else rows.new[id(t)] for n, t in tables.items()}
    optimizer = torch.optim.Adam(
        [{"params": [moved[n]], "lr": RATE * _usual_size(t)} for n, t in tables.items()]
    )
    steps = max(STEPS, PASSES * -(-new.count // new.size))
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    random = torch.Generator().manual_seed(seed)
    share = new.size / new.count
    for step in range(steps):
        triples = new.draw(random)
        rivals, counts = _rivals(model, groups, random)
        optimizer.zero_grad()
        with nullcontext() if whole else rows:
            loss = fact_losses(model, config, triples, rivals, counts).sum()
            others = fact_losses(model, config, known.draw(random), rivals, counts).mean()
            loss = loss + share * known.count * others
            loss = loss + _penalty(model, config, moved, triples, share)
        loss.backward()
        for table in tables.values():
            if table.grad is not None:
                table.grad[groups[1][0]] = 0
        optimizer.step()
        slower.step()
        if progress is not None:
            progress(step + 1, steps)
    with torch.no_grad():
        for name, table in tables.items():
            table[rows.first :] = moved[name][-(len(table) - rows.first) :]


def _rivals(model: Model, groups: list[Group], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw rivals [K] from each group; return also how many entities each stands for [K]."""
    found, counts, most = [], [], rivals_of(model)
    for entities, total in groups:
        some = entities[torch.randperm(len(entities), generator=generator)[:most]]
        found.append(some)
        counts.append(torch.full((len(some),), total / len(some)))
    return torch.cat(found), torch.cat(counts)


def _penalty(
    model: Model,
    config: TrainConfig,
    tables: Tables,
    batch: tuple[Tensor, Tensor, Tensor],
    share: float,
) -> Tensor:
    """Return the run's penalty in a step on a share of the facts."""
    weight = penalty(config, model)
    if config.penalty_norm == "n3":
        return weight * cubes(model, *batch)
    return weight / 2 * share * torch.stack([t.square().sum() for t in tables.values()]).sum()


def _usual_size(table: Tensor) -> float:
    return float(table.detach().square().mean().sqrt())


def _grown(model: Model, graph: KnowledgeGraph, facts: Ids, new: int) -> Model:
    """Return the model with more entities, each at the mean of the entities of its type."""
    names, before = entity_tables(model), model.entities
    state = dict(model.state_dict())
    train = torch.from_numpy(graph.train.astype(np.int64))
    for name in names:
        table = state[name]
        rows, counts = table.new_zeros(new, *table.shape[1:]), table.new_zeros(new)
        for place in (0, 2):
            own = facts[facts[:, place] >= before]
            for relation in np.unique(own[:, 1]).tolist():
                like_it = train[train[:, 1] == relation, place].unique().to(table.device)
                mean = table[like_it].mean(0) if len(like_it) else table.mean(0)
                which = own[own[:, 1] == relation, place].astype(np.int64) - before
                which = torch.from_numpy(which).to(table.device)
                rows.index_add_(0, which, mean.expand(len(which), *mean.shape))
                counts.index_add_(0, which, counts.new_ones(len(which)))
        state[name] = torch.cat([table, rows / counts.clamp(min=1).unsqueeze(1)])
    grown = like(model, before + new)
    grown.load_state_dict(state)
    return grown.to(model.entity.device)
