"""Kills trainings at random moments, goes on with each until it ends, and compares the ends.

python benchmarks/kills.py --kills 500 [--cache-memory 50% --cache-place disk]

A process that has imported everything forks a child for each attempt: real processes that really
die by SIGKILL, without waiting for imports every time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from nscaching import KnowledgeGraph, Listener, UserError, resume, train
from nscaching.config import TrainConfig
from nscaching.runs.checkpoints import Checkpoints
from nscaching.runs.folder import RunFolder
from nscaching.training import recorder as recording

CONFIG = TrainConfig().changed(
    model="TransD", epochs=4, dim=8, n1=5, n2=5, validate_every=2, threads=1, device="cpu", seed=1
)
EVERY = 0.01  # seconds between checkpoints


class Strict(Listener):
    """Ends the process at any warning."""

    def note(self, text: str) -> None:
        """End the process."""
        sys.exit(text)


def attempt(graph: KnowledgeGraph, config: TrainConfig, path: Path) -> None:
    """Train, or go on: what a child does."""
    if RunFolder(path).finished:  # and killed before it could say so
        with suppress(UserError):
            resume(path)
    elif path.exists():
        resume(path, checkpoint_every=EVERY, listener=Strict())
    else:
        train(graph, config, out=path, checkpoint_every=EVERY)


def fork(start: Callable[[Path], None], path: Path) -> int:
    """Start a child; it ends with 0 once the run is finished."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        start(path)
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def phase(path: Path) -> str:
    """Say what a kill has hit."""
    if not path.exists():
        return "before the folder"
    if (path / "README.md").exists():
        return "finishing"
    if any(path.glob("checkpoints/*.partial")):
        return "writing a checkpoint"
    return "training" if any(path.glob("checkpoints/*")) else "before a checkpoint"


def run_to_its_end(
    start: Callable[[Path], None], path: Path, moments: random.Random, longest: float, most: int
) -> Counter[str]:
    """Kill one training again and again, at most so often; return what the kills hit."""
    hit: Counter[str] = Counter()
    while True:
        child = fork(start, path)
        if hit.total() < most:
            # Some early, some late: starts and ends are short.
            ends = time.monotonic() + moments.uniform(0, longest) * moments.choice((0.2, 0.5, 1))
            while time.monotonic() < ends:
                time.sleep(0.002)
                if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    break
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return hit
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"{path}: a training could not go on")
        hit[phase(path)] += 1
        Checkpoints(path).newest(lambda text: sys.exit(f"damaged: {text}"))


def outcome(path: Path) -> dict[str, Any]:
    """Return what a finished run holds, but for what a clock measured."""
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [
        {key: value for key, value in json.loads(line).items() if "seconds" not in key}
        for line in lines
    ]
    tensors = {name: load_file(path / f"{name}.safetensors") for name in ("model", "cache")}
    return {"records": records, "files": sorted(f.name for f in path.iterdir()), **tensors}


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Compare to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def main() -> None:
    """Print what was hit, and whether all ends were the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-pictures", action="store_true", help="leave out plot and report")
    parser.add_argument("--cache-memory")
    parser.add_argument("--cache-place", default="auto")
    options = parser.parse_args()
    config = CONFIG.changed(cache_memory=options.cache_memory, cache_place=options.cache_place)
    if options.no_pictures:
        from nscaching.runs import run

        run.plot_run = lambda *_: None
        run.Run.report = lambda *_, **__: Path()  # type: ignore[method-assign]
    graph, moments = KnowledgeGraph.load("world"), random.Random(options.seed)  # noqa: S311
    start = partial(attempt, graph, config)
    train(graph, config, epochs=1)  # compiles, in this process, what the children will need
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        run_to_its_end(start, Path(folder) / "whole", moments, 0, 0)
        alone, whole = time.monotonic() - began, outcome(Path(folder) / "whole")
        recording.SHARE = 1.0  # here checkpoints may take all the time
        hit: Counter[str] = Counter()
        runs = 0
        while hit.total() < options.kills:
            runs += 1
            path, most = Path(folder) / str(runs), options.kills - hit.total()
            hit += run_to_its_end(start, path, moments, alone, most)
            found = outcome(path)
            what = [name for name in whole if not equal(found[name], whole[name])]
            if what:
                print(
                    found["files"],
                    list(path.glob("checkpoints/*")),
                    list(path.glob("checkpoints/.*")),
                )
                raise SystemExit(f"run {runs} came out otherwise: {', '.join(what)}")
    figures = {"kills": hit.total(), "hit": dict(hit), "runs": runs, "different": 0}
    print(json.dumps({**figures, "seconds": time.monotonic() - began, "seconds_of_one": alone}))


if __name__ == "__main__":
    main()
