"""Triton's interpreter, several times faster: what it does at every call is done once."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

__all__ = ["hasten", "sort", "sorted_twice"]


def sort(x):
    """Sort a block in ascending order, which is all that kernels ask of ``tl.sort``.

    Triton's own goes through a network of exchanges, each an interpreted reduction.
    """
    handle = interpreter.TensorHandle(np.sort(x.handle.data), x.handle.dtype)
    return tl.core.tensor(handle, x.type)


def hasten() -> None:
    """Let the functions of the language be those of the interpreter from now on.

    It would look for them among all names, and replace them, whenever one function of a kernel
    calls another.
    """
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()
    tl.sort = sort
    interpreter._get_np_dtype = kept_by_name(interpreter._get_np_dtype)
    # Overflows are computed for an assertion that, without `debug`, is left out.
    if not interpreter.InterpreterOptions().debug:
        TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None


def kept_by_name(numpy_dtype):
    """Return a function from Triton's types to NumPy's that makes its table of them once."""
    kept = {}

    @functools.wraps(numpy_dtype)
    def find(dtype):
        scalar = dtype.scalar  # of blocks, what they consist of: shapes do not matter
        if scalar.name not in kept:
            kept[scalar.name] = numpy_dtype(scalar)
        return kept[scalar.name]

    return find


@triton.jit
def sorted_twice(x, mine, own, N: tl.constexpr):
    """Sort a block [N] as above, and as Triton does."""
    at = tl.arange(0, N)
    block = tl.load(x + at)
    tl.store(mine + at, tl.sort(block))
    tl.store(own + at, tl.standard.sort(block))
