"""Parameters of an earlier run: in a model, or as the start of another training run."""

from contextlib import suppress

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.models import Model, build
from nscaching.runs.folder import RunFolder


def warm_start(
    flag: str, path: str, graph: KnowledgeGraph, model: str, dim: int
) -> dict[str, Tensor]:
    """Return the parameters of the run that a flag names, or say why they do not fit."""
    folder = RunFolder(path)
    # Trusted: the names are only compared. The model that is built is the one asked for here.
    source, config = folder.read_config(trust=True)
    before, (parameters, _) = folder.read_graph(source), folder.read_model()
    for what, theirs, ours in (
        ("model", config.model, model),
        ("dim", config.dim, dim),
        ("entities", before.entities, graph.entities),
        ("relations", before.relations, graph.relations),
    ):
        if theirs != ours:
            difference = f"{theirs}, here {ours}" if what in ("model", "dim") else "not the same"
            raise UserError(f"{flag} {path}: its {what}: {difference}")
    built_model(f"{flag} {path}", config, graph, parameters)
    if not all(tensor.isfinite().all() for tensor in parameters.values()):
        raise UserError(f"{flag} {path}: its parameters are not finite: that training diverged")
    return parameters


def built_model(
    where: str, config: TrainConfig, graph: KnowledgeGraph, parameters: dict[str, Tensor]
) -> Model:
    """Return the model of a configuration with these parameters; an error names ``where``."""
    settings = config.model, graph, config.dim, config.norm
    try:
        # First without memory: a damaged configuration may ask for too much.
        with torch.device("meta"), suppress(NotImplementedError):  # by a constructor that computes
            build(*settings).load_state_dict(parameters, assign=True)
        model = build(*settings)
        model.load_state_dict(parameters)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{where}: model and configuration differ: {reason}") from None
    return model
