"""The parameters of a run folder: of a model that is built for them, or to start from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.kernels.state import is_finite
from nscaching.models import Model, build
from nscaching.runs.folder import RunFolder


def warm_start(
    named: str, path: str, graph: KnowledgeGraph, model: str, dim: int, reciprocal: bool = False
) -> dict[str, Tensor]:
    """Return the parameters of the run that a setting names, or say why they do not fit."""
    folder = RunFolder(path)
    # Trusted: the names are only compared. The model that is built is the one asked for here.
    source, config = folder.read_config(trust=True)
    before, (parameters, _) = folder.read_graph(source), folder.read_model()
    for what, theirs, ours in (
        ("model", config.model, model),
        ("dim", config.dim, dim),
        ("reciprocal", config.reciprocal, reciprocal),
        ("entities", before.entities, graph.entities),
        ("relations", before.relations, graph.relations),
    ):
        if theirs != ours:
            names = what in ("entities", "relations")
            difference = "not the same" if names else f"{theirs}, here {ours}"
            raise UserError(f"{named} {path}: its {what}: {difference}")
    check_parameters(f"{named} {path}", config, graph, parameters)
    if not all(map(is_finite, parameters.values())):
        raise UserError(f"{named} {path}: its parameters are not finite: that training diverged")
    return parameters


def check_parameters(
    where: str, config: TrainConfig, graph: KnowledgeGraph, parameters: dict[str, Tensor]
) -> None:
    """Refuse parameters that the model of a configuration does not have; takes no memory."""
    settings = config.model, graph, config.dim, config.norm, config.reciprocal
    # A constructor that computes cannot do so without memory.
    with _same_model(where), torch.device("meta"), suppress(NotImplementedError):
        build(*settings).load_state_dict(parameters, assign=True)


def built_model(
    where: str,
    config: TrainConfig,
    graph: KnowledgeGraph,
    parameters: dict[str, Tensor],
    device: torch.device,
) -> Model:
    """Return the model of a configuration with these parameters; an error names ``where``."""
    # First without memory: a damaged configuration may ask for too much.
    check_parameters(where, config, graph, parameters)
    with _same_model(where), device:  # parameters are nowhere else than there
        model = build(config.model, graph, config.dim, config.norm, config.reciprocal)
        model.load_state_dict(parameters)
    return model.to(device)


@contextmanager
def _same_model(where: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{where}: model and configuration differ: {reason}") from None
