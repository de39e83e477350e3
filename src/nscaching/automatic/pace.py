"""How fast a candidate trains here, measured before anything is written."""

from __future__ import annotations

import time

from nscaching.automatic.plan import Pace
from nscaching.automatic.slices import Watch
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import Stopped
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.training import fitting, memory
from nscaching.training.listener import Stage
from nscaching.training.trainer import Trainer

SAMPLE = 500  # validation triples that are ranked


class _Enough(Exception):  # noqa: N818  (no error)
    """The measurement has taken its time."""


def measure(graph: KnowledgeGraph, config: TrainConfig, seconds: float, watch: Watch) -> Pace:
    """Train for some seconds, or one epoch if that is shorter, and rank some validation triples.

    What is compiled at first use does not count.
    """
    fitting.check(memory.Statement(graph, config))
    reports: list[tuple[float, int]] = []  # when, and how many triples of the epoch were trained

    def report(stage: Stage, done: int, total: int) -> None:
        if watch.stop():
            raise Stopped("stopped; nothing was written")
        if stage is Stage.TRAINING:
            reports.append((time.monotonic(), done))
            if len(reports) > 1 and reports[-1][0] - reports[0][0] > seconds:
                raise _Enough

    began = time.monotonic()
    with torch_settings(config.threads):
        trainer = Trainer(graph, config, report=report)
        setup = time.monotonic() - began
        try:
            trainer.epoch(1)
            if len(reports) == 1:  # a batch has all triples
                trainer.epoch(2)
        except _Enough:
            pass
        (first, of_first), (last, of_last) = reports[0], reports[-1]
        epoch = (last - first) * len(graph.train) / (of_last - of_first or of_last)
        some = graph.valid[:SAMPLE]
        took = 0.0
        for triples in (some[:1], some):
            queries = Queries(graph, triples, device=trainer.device)
            began = time.monotonic()
            rank(trainer.model, queries, kernels=trainer.kernels)
            took = time.monotonic() - began
    return Pace(setup, epoch, took * len(graph.valid) / len(some))
