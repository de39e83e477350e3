"""Search for good hyperparameters by validation MRR: ``nscaching tune``.

Optuna is an optional dependency. Only the functions of this file may be imported without it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.errors import UserError

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph
    from nscaching.tuning.result import Tuning
    from nscaching.tuning.search import Watch


def tune(
    graph: KnowledgeGraph,
    space: str | Path | Mapping[str, Any] = "paper",
    trials: int = 50,
    *,
    out: str | Path | None = None,
    trust: bool = False,
    processes: int = 1,
    watch: Watch | None = None,
    **settings: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Tuning:
    """Search for the settings with the best validation MRR.

    ``space`` is "paper", "wide", a TOML file, or a table such as ``{"lr": [0.001, 0.01],
    "margin": {"low": 1.0, "high": 12.0}}``. ``settings`` are fields of ``TrainConfig`` that stay
    fixed; what is neither named nor tuned is chosen for the graph, as ``train`` does. ``model``,
    ``sampler`` and ``generator`` may also be classes. With ``out`` the search is
    kept in that folder; the same call with the same folder continues the search, and ``trials``
    counts the earlier trials too. ``processes`` is how many trials run at the same time, a process
    each; 0: one for each visible GPU. A script then needs ``if __name__ == "__main__":`` around its
    calls. ``watch`` has the callbacks of the search. ``trust`` lets a TOML file name code from
    outside the package.
    """
    require_optuna()
    from nscaching.tuning.search import Search

    return Search(space, settings, trials, out, trust, processes).run(graph, watch)


def require_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise UserError('tune needs optuna: pip install "nscaching[tune]"')
