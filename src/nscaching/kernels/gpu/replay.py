"""Training steps recorded once and replayed as CUDA graphs."""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.kernels.reference import Step


class Replay:
    """A step as CUDA graphs: launching its kernels one by one takes longer than running them.

    The first step of its kind runs as it is, which compiles its kernels; the second is recorded.
    """

    def __init__(self, step: Step, phase: Callable[[], object]) -> None:
        self.step, self.phase = step, phase
        self.rows: dict[int, Tensor] = {}
        self.graphs: dict[tuple[int, object], torch.cuda.CUDAGraph | None] = {}
        # Recording must not wait for another stream, such as one in autograd's memory.
        self.stream = torch.cuda.Stream()

    def __call__(self, rows: Tensor) -> None:
        phase = self.phase()
        if phase is None:
            self.step(rows)
            return
        # The graph reads the rows where the recorded step read them.
        here = self.rows.setdefault(len(rows), torch.empty_like(rows))
        here.copy_(rows)
        kind = (len(rows), phase)
        if kind not in self.graphs:
            self.graphs[kind] = None
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(here)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        graph = self.graphs[kind]
        if graph is None:
            graph = self.graphs[kind] = self._record(here)
        graph.replay()

    def _record(self, rows: Tensor) -> torch.cuda.CUDAGraph:
        # Freeing the graphs of an earlier training during the recording would spoil this graph.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU during the recording, as for a snapshot of the cache.
            mode = "thread_local"
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=mode):
                self.step(rows)
        finally:
            if collects:
                gc.enable()
        return graph
