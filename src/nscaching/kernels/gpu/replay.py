"""Whole steps replayed as CUDA graphs, and the seconds that Triton compiles."""

import gc
from collections.abc import Callable
from typing import Any

import torch
import triton

from nscaching.kernels.reference import Step


class Stopwatch:
    """Listens to Triton, after an earlier listener; adds up the seconds of compiling or loading."""

    def __init__(self, knobs: Any) -> None:
        self.seconds = 0.0
        self.earlier, knobs.compilation.listener = knobs.compilation.listener, self

    def __call__(self, **event: Any) -> None:
        self.seconds += event["times"].total / 1e6  # of one kernel, in microseconds
        if self.earlier is not None:
            self.earlier(**event)


# From Triton 3.4 on; before, the seconds stay in the first epoch.
COMPILING = Stopwatch(triton.knobs) if hasattr(triton, "knobs") else None


class Replay:
    """A step as CUDA graphs: launching its kernels one by one takes longer than running them.

    The first step of its kind runs as it is, which compiles its kernels; the second is recorded.
    """

    def __init__(self, step: Step, phase: Callable[[], object]) -> None:
        self.step, self.phase = step, phase
        self.graphs: dict[tuple[int, object], torch.cuda.CUDAGraph | None] = {}
        # Recording must not wait for another stream, such as one in autograd's memory.
        self.stream = torch.cuda.Stream()

    def __call__(self, size: int) -> None:
        phase = self.phase()
        if phase is None:
            self.step(size)
            return
        kind = (size, phase)
        if kind not in self.graphs:
            self.graphs[kind] = None
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(size)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        graph = self.graphs[kind]
        if graph is None:
            graph = self.graphs[kind] = self._record(size)
        graph.replay()

    def _record(self, size: int) -> torch.cuda.CUDAGraph:
        # Freeing the graphs of an earlier training during the recording would spoil this graph.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU during the recording, as for a snapshot of the cache.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.step(size)
        finally:
            if collects:
                gc.enable()
        return graph
