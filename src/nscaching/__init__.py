"""Knowledge-graph embedding with cache-based negative sampling.

from nscaching import KnowledgeGraph, train

graph = KnowledgeGraph.load("world")
run = train(graph, model="TransE", sampler="nscaching", epochs=100, seed=1)
print(run.evaluate()["mrr"], run.predict(head="Portugal", relation="borders"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph

if TYPE_CHECKING:
    from nscaching.config import TrainConfig
    from nscaching.probes import ProbeConfig
    from nscaching.run import Run
    from nscaching.training import resume, train
    from nscaching.tuning import tune

__version__ = "0.1.0"
__all__ = [
    "KnowledgeGraph", "ProbeConfig", "Run", "TrainConfig", "UserError", "__version__", "resume",
    "train", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import what needs PyTorch only when it is asked for: ``--help`` should not wait for it."""
    if name == "Run":
        from nscaching.run import Run

        return Run
    if name in ("train", "resume"):
        from nscaching import training

        return getattr(training, name)
    if name == "tune":
        from nscaching.tuning import tune

        return tune
    if name == "TrainConfig":
        from nscaching.config import TrainConfig

        return TrainConfig
    if name == "ProbeConfig":
        from nscaching.probes import ProbeConfig

        return ProbeConfig
    raise AttributeError(f"module 'nscaching' has no attribute {name!r}")
