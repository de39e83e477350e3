"""Knowledge-graph embedding with cache-based negative sampling.

from nscaching import KnowledgeGraph, train

graph = KnowledgeGraph.load("world")
run = train(graph, seed=1)
print(run.evaluate()["mrr"], run.predict(head="Portugal", relation="borders"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nscaching.errors import UserError

if TYPE_CHECKING:
    from nscaching.automatic.search import auto
    from nscaching.config import TrainConfig
    from nscaching.data.graph import KnowledgeGraph
    from nscaching.models import Model
    from nscaching.probes import ProbeConfig
    from nscaching.runs.run import Run
    from nscaching.samplers import Sampler
    from nscaching.samplers.cache import NegativeCache
    from nscaching.training.defaults import settings_for
    from nscaching.training.listener import Listener
    from nscaching.training.train import resume, train
    from nscaching.tuning import tune

__version__ = "0.2.0"
__all__ = [
    "KnowledgeGraph", "Listener", "Model", "NegativeCache", "ProbeConfig", "Run", "Sampler",
    "TrainConfig", "UserError", "__version__", "auto", "resume", "settings_for", "train", "tune",
]  # fmt: skip

# Imported when they are asked for: ``nscaching --help`` should not wait for PyTorch.
ROOMS = {
    "KnowledgeGraph": "data.graph",
    "Listener": "training.listener",
    "NegativeCache": "samplers.cache",
    "Model": "models",
    "ProbeConfig": "probes",
    "Run": "runs.run",
    "Sampler": "samplers",
    "TrainConfig": "config",
    "auto": "automatic",
    "resume": "training.train",
    "settings_for": "training.defaults",
    "train": "training.train",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in ROOMS:
        raise AttributeError(f"module 'nscaching' has no attribute {name!r}")
    return getattr(importlib.import_module(f"nscaching.{ROOMS[name]}"), name)
