"""Triton's interpreter, several times faster: what it does at every call is done once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

__all__ = ["hasten", "sort"]


def sort(x):
    """Sort a block in ascending order, which is all that kernels ask of ``tl.sort``.

    Triton's own goes through a network of exchanges, each an interpreted reduction.
    """
    handle = interpreter.TensorHandle(np.sort(x.handle.data), x.handle.dtype)
    return tl.core.tensor(handle, x.type)


def hasten() -> None:
    """Let the functions of the language be those of the interpreter from now on.

    It replaces them anew, by a search through all names, whenever one kernel function calls
    another, and again puts them back only after the outermost.
    """
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()
    tl.sort = sort
