"""What ``nscaching tune`` prints: the best trials, what mattered, and how to train with it."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from nscaching.cli.tables import print_json, print_table, say
from nscaching.tuning.mattered import text
from nscaching.tuning.result import BEST, PLOT, TRIALS
from nscaching.tuning.space import Choices, Space

if TYPE_CHECKING:
    from nscaching.tuning.result import Trial, Tuning

__all__ = ["space", "tuning"]

TOP = 10


def space(space: Space) -> None:
    """Say what will be tried."""
    parts = []
    for name, part in space.items():
        if isinstance(part, Choices):
            parts.append(f"{name} {', '.join(map(text, part.values))}")
        else:
            log = " (log)" if part.log else ""
            parts.append(f"{name} {text(part.low)} to {text(part.high)}{log}")
    points = math.prod(part.size() for part in space.values())
    count = f" ({points:,.0f} combinations)" if points < math.inf else ""
    Console(stderr=True, highlight=False).print(
        Text(f"tuning {'; '.join(parts)}{count}"), soft_wrap=True
    )


def tuning(tuning: Tuning, as_json: bool) -> None:
    """Show the results of a search."""
    assert tuning.path is not None
    best = tuning.best  # where none finished, that is all there is to say
    command = f"nscaching train --config {shlex.quote(str(tuning.path / BEST))}"
    shares, marginals = tuning.importance(), tuning.marginals()
    if as_json:
        print_json(_figures(tuning, best, shares, command))
        return
    names = list(shares) or list(tuning.space)
    ranked = sorted(tuning.trials, key=lambda t: (t.state == "finished", t.mrr), reverse=True)
    say(f"{tuning.config.model} with {tuning.config.sampler} on {tuning.name}: {_count(tuning)}")
    print_table(
        ["trial", "MRR", *names, ""],
        [
            [
                str(trial.number),
                f"{trial.mrr:.4f}" if trial.state != "failed" else "–",
                *(text(trial.settings[name]) for name in names),
                "" if trial.state == "finished" else trial.state,
            ]
            for trial in ranked[:TOP]
        ],
    )
    say("")
    rows = []
    for name in names:
        share = f"{100 * shares[name]:.0f}%" if shares else "–"
        for marginal in marginals[name]:
            figures = str(marginal.trials), f"{marginal.mean:.4f}", f"{marginal.best:.4f}"
            rows.append([name, share, marginal.value, *figures])
            name = share = ""
    if not shares:
        say("(shares need some more trials)")
    print_table(["what mattered", "share", "value", "trials", "mean MRR", "best MRR"], rows)
    say("", f"in {tuning.path}: {BEST}, {TRIALS}, {PLOT}", f"train with the best: {command}")


def _count(tuning: Tuning) -> str:
    states = [trial.state for trial in tuning.trials]
    parts = [f"{states.count(s)} {s}" for s in ("finished", "pruned", "failed") if s in states]
    count = f"{len(states)} trials" if len(states) != 1 else "1 trial"
    return f"{count}, {', '.join(parts)}"


def _figures(tuning: Tuning, best: Trial, shares: dict[str, float], command: str) -> dict[str, Any]:
    return {
        "out": str(tuning.path),
        "best": dataclasses.asdict(best),
        "config": tuning.best_config.to_dict(),
        "command": command,
        "importance": shares,
        "marginals": {
            name: [dataclasses.asdict(marginal) for marginal in found]
            for name, found in tuning.marginals().items()
        },
        "trials": [dataclasses.asdict(trial) for trial in tuning.trials],
    }
