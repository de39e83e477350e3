"""Compiles the kernels of some trainings for a GPU that need not be there; launches nothing.

An interpreter takes what a compiler refuses. Run by test_kernels_compile.py in a process of its
own: in that of the tests, kernels are interpreted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.errors import UserError
from nscaching.kernels import compiled as gradients
from nscaching.kernels.gpu import kernels as triton_kernels
from nscaching.training.trainer import Trainer

H200 = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.int32: "i32",
    torch.int64: "i64", torch.bool: "i1",
}  # fmt: skip
NUMBERS = "norm", "lazy", "tail", "n1", "validate_candidates"
compiled: dict[tuple, int] = {}


def kind_of(value) -> str:
    """Return how the compiler calls the type of an argument."""
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def compile_only(self, *given, grid, warmup, **named):
    """Stand in for a launch."""
    arguments = dict(zip(self.arg_names, given, strict=False)) | named
    constants = {p.name: arguments[p.name] for p in self.params if p.is_constexpr}
    types = {
        name: "constexpr" if name in constants else kind_of(arguments[name])
        for name in self.arg_names
    }
    warps = named.get("num_warps", 4)
    key = (self.__name__, *types.items(), *constants.items(), warps)
    if key not in compiled:
        places = {(self.arg_names.index(name),): value for name, value in constants.items()}
        source = ASTSource(self, types, places)
        began = time.perf_counter()
        binary = triton.compile(source, target=H200, options={"num_warps": warps}).asm["cubin"]
        compiled[key] = len(binary)
        sys.stdout.write(f"{self.__name__} {len(binary)} {time.perf_counter() - began}\n")


def main() -> None:
    """Train a step and rank, as the command line says: settings of a training in each word."""
    JITFunction.run = compile_only
    gradients.SPARSE = 1  # so that some of the gradients are compact
    # What no kernel fills is to be numbers that may be ids.
    torch.empty, torch.empty_like = torch.zeros, torch.zeros_like
    torch.Tensor.new_empty = torch.Tensor.new_zeros
    # Kernels that are known by now are not interpreted; but tensors on the CPU will do for them.
    os.environ["TRITON_INTERPRET"] = "1"
    triton_kernels.INTERPRETED = True
    triton_kernels.TritonKernels.try_out = lambda self, device: None
    graph = KnowledgeGraph.load("world")
    for words in sys.argv[1:]:
        settings = dict(pair.split("=") for pair in words.split(","))
        numbers = {name: int(settings.pop(name)) for name in NUMBERS if name in settings}
        config = TrainConfig().changed(
            dim=16,
            n2=5,
            batch_size=64,
            kernels="triton",
            device="cpu",
            **settings,
            **{"n1": 5} | numbers,
        )
        trainer = Trainer(graph, config)
        trainer.step(64)
        with contextlib.suppress(UserError):  # nothing was computed: the scores are anything
            trainer.rank("valid", 1)
    rows, keys = torch.zeros(4, 50, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    kernels = triton_kernels.TritonKernels()
    kernels.new_elements(rows, keys, rows, keys.double())
    sys.stderr.write(f"{kernels.compile_seconds()}\n")


if __name__ == "__main__":
    main()
