"""What the probes of training cost: epochs without and with them in turn, in one process.

python benchmarks/probes.py [--data fb15k237] [--model TransE] [--sampler nscaching] [--epochs 20]

They are used as the paper's figures use them: repeats of 20 epochs, changes after every epoch, five
triples watched at six epochs, the cache at those of 0, 20, 100, 200 and 500 that there are. The
paper's runs have 1,000 epochs: what happens at a few of them weighs less there than in short runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from nscaching import KnowledgeGraph, ProbeConfig, TrainConfig
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.runs.folder import RunFolder
from nscaching.runs.run import Run
from nscaching.training.listener import Listener
from nscaching.training.recorder import Recorder
from nscaching.training.trainer import Trainer

Work = Callable[..., Any]

WARM_UP = 3  # epochs: compile, record CUDA graphs, which neither side is charged for
WINDOW, WATCHED, SNAPSHOTS = 20, 5, (0, 20, 100, 200, 500)


def machine(device: torch.device) -> str:
    """Say what this is measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {torch.get_num_threads()} of {os.cpu_count()} cores"


class Stopwatch:
    """Collects the seconds that work takes, under names.

    On a CPU they are seconds of its processors, which other programs do not make longer.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, defaultdict[str, list[float]](list)

    def now(self) -> float:
        """Return the time, once the device has finished."""
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def __call__(self, name: str, work: Work) -> Work:
        """Return the same work, timed."""

        def timed(*given: Any) -> Any:  # noqa: ANN401
            began = self.now()
            found = work(*given)
            self.seconds[name].append(self.now() - began)
            return found

        return timed


def measure(graph: KnowledgeGraph, config: TrainConfig, epochs: int) -> dict[str, float]:
    """Train without and with all probes in turn; return seconds of an epoch, and shares of them.

    The steps of two trainings differ by chance more than by recording, so on a CPU, where it can
    be, recording is timed by itself.
    """
    cached = config.sampler == "nscaching"
    asked = ProbeConfig(
        probe_repeats=min(WINDOW, epochs),
        probe_changes=cached,
        watch=WATCHED,
        watch_every=max(1, epochs // 5),
        snapshots=tuple(epoch for epoch in SNAPSHOTS if cached and epoch <= epochs),
    )
    off, on = Trainer(graph, config), Trainer(graph, config, probes=asked)
    watch = Stopwatch(off.device)
    on.probes.figures = watch("figures", on.probes.figures)  # type: ignore[method-assign]
    if off.device.type == "cpu":  # on a GPU it is part of a graph
        on.probes.record = watch("record", on.probes.record)  # type: ignore[method-assign]
    turns = [watch("off", off.epoch), watch("on", on.epoch)]
    with tempfile.TemporaryDirectory() as folder:
        report, run = on.report, Run(graph, config, on.model)
        recorder = Recorder(run, on, Listener(), 0, RunFolder(folder))
        on.report = report  # a run without probes would have the recorder's, too
        on.probes.look(0)  # so that it is compiled, as validation would have done
        look = watch("look", lambda *at: recorder.keep_finding(on.probes.look(*at)))
        for epoch in range(1 - WARM_UP, epochs + 1):
            for turn in turns:
                turn(epoch)
            turns.reverse()  # each goes first in every other epoch
            if epoch >= 0:
                look(epoch, epoch == epochs)
        watch("look", recorder.pending.result)()
        recorder.background.shutdown()
    seconds = {name: taken[WARM_UP:] for name, taken in watch.seconds.items()}
    off_s, on_s = statistics.median(seconds["off"]), seconds["on"]
    # Sums, not medians: what is written beside training slows a few epochs alone.
    ratio = (sum(on_s) - sum(seconds["figures"])) / sum(seconds["off"])
    taking_down = (ratio - 1) * off_s
    if recorded := watch.seconds["record"]:
        taking_down = sum(recorded) / (WARM_UP + epochs)
    # What happens after an epoch is summed: a window's end is one epoch in many.
    after = [sum(taken) / epochs for taken in (seconds["figures"], watch.seconds["look"])]
    return {
        "off": off_s,
        "steps": ratio - 1,
        "recording": taking_down / off_s,
        "figures": after[0] / off_s,
        "look": after[1] / off_s,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--sampler", nargs="+", default=["nscaching", "bernoulli"])
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    chosen = parser.parse_args()
    with torch_settings(chosen.threads):
        show(chosen)


def show(chosen: argparse.Namespace) -> None:
    """Measure with each sampler and print a row."""
    graph = KnowledgeGraph.load(chosen.data)
    for number, sampler in enumerate(chosen.sampler):
        config = TrainConfig(
            model=chosen.model,
            sampler=sampler,
            batch_size=chosen.batch_size,
            epochs=chosen.epochs,
            device=chosen.device,
            threads=chosen.threads,
        )
        found = measure(graph, config, chosen.epochs)
        if not number:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            device = torch.device("cpu") if chosen.device == "cpu" else device
            print(f"{graph.name}, {chosen.model}, {chosen.epochs} epochs; {machine(device)}")
            print("| sampler | off, s | steps | recording | figures | watch, snapshots | in all |")
            print("|---|---|---|---|---|---|---|")
        off, steps, *parts = found.values()
        shares = " | ".join(f"{100 * part:+.2f}%" for part in [steps, *parts, sum(parts)])
        print(f"| {sampler} | {off:.4f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
