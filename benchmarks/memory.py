"""Compare the stated memory of a training run with its real peak: some steps and a ranking.

python benchmarks/memory.py --entities 2000000 --triples 10000000 --dim 50 --n1 10

With --keys nothing is made or trained: the statement of a graph of these sizes, on a GPU that need
not be there either.

python benchmarks/memory.py --entities 86000000 --relations 14824 --triples 304700000 \
    --keys 260000000 --dim 100 --optimizer row-adagrad --sampler bernoulli --device cuda
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.cli.training import print_memory as show
from nscaching.training import machine, memory
from nscaching.training.graph_sizes import Sizes
from nscaching.training.machine import memory_held
from nscaching.training.memory import Statement
from nscaching.training.trainer import Trainer
from nscaching.units import readable


def random_graph(entities: int, relations: int, triples: int, held_out: int) -> KnowledgeGraph:
    """Return a graph of random triples, nearly all of them with keys of their own."""
    random = np.random.default_rng(0)
    sizes = (entities, relations, entities)
    columns = [random.integers(n, size=triples, dtype=np.int32) for n in sizes]
    train = np.stack(columns, axis=1)
    some = train[:held_out].copy()
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    return KnowledgeGraph(*names, train, some, some, name="random")


def forget_peak() -> None:
    """Let the peak of memory count from now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def state_only(sizes: Sizes, config: TrainConfig, as_json: bool) -> None:
    if config.device == "cuda" and not torch.cuda.is_available():
        from nscaching.kernels.gpu.kernels import TritonKernels

        device, kernels = torch.device("cuda"), TritonKernels()
        memory.choose_device = lambda name: device  # type: ignore[assignment]
        memory.choose_kernels = lambda *asked: kernels  # type: ignore[assignment]
        machine.gpu_available = lambda: 139 << 30  # type: ignore[assignment]
    show(Statement(sizes, config, Path()), as_json)


def main() -> None:
    """State, train, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--relations", type=int, default=100)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--sampler", default="nscaching")
    parser.add_argument("--optimizer", default="row-adam")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--n1", type=int, default=10)
    parser.add_argument("--cache-memory")
    parser.add_argument("--cache-place", default="auto")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keys", type=int)
    asked = vars(parser.parse_args())
    keys = asked.pop("keys")
    sizes = [asked.pop(name) for name in ("entities", "relations", "triples", "held_out")]
    steps, as_json = asked.pop("steps"), asked.pop("json")
    config = TrainConfig.from_dict({"n2": asked["n1"], **asked})
    if keys is not None:
        state_only(Sizes(*sizes[:3], keys, sizes[3]), config, as_json)
        return
    graph = random_graph(*sizes)
    forget_peak()
    stated = Statement(graph, config)
    began = time.perf_counter()
    torch.set_num_threads(config.threads)
    trainer = Trainer(graph, config)
    ready = time.perf_counter() - began
    for size in itertools.islice(trainer.triples.sizes(config.batch_size), steps):
        trainer.step(size)
        trainer.meter.count(size)
    trained = time.perf_counter() - began - ready
    trainer.keep(1)
    trainer.rank("valid", 1)
    needs, took = stated.peak("memory"), memory_held("VmHWM")
    if as_json:
        print(json.dumps({"stated": needs, "taken": took}))
        return
    if config.device == "cuda":
        gpu, used = stated.peak("GPU memory"), torch.cuda.max_memory_reserved()
        print(f"GPU memory: stated {readable(gpu)}, taken {readable(used)} (PyTorch's share)")
    show(stated, as_json=False)
    print(f"stated {readable(needs)}, taken {readable(took)}: {needs / took:.2f} times as much")
    print(f"ready after {ready:.1f} s, then {steps} steps in {trained:.1f} s")


if __name__ == "__main__":
    main()
