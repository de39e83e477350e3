"""The state of the parts of a training: what a checkpoint holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["State", "join", "part", "restore_random"]

State = dict[str, Any]
"""Tensors and plain values by name. A part of a whole has names with its own and a dot before."""


def join(**parts: State) -> State:
    """Put the states of parts together."""
    return {f"{name}.{key}": value for name, state in parts.items() for key, value in state.items()}


def part(state: State, name: str) -> State:
    """Return the state of one part."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}


def restore_random(generator: torch.Generator, state: Tensor, seed: int) -> None:
    """Set a generator to where another was; one of another kind of device begins with the seed."""
    if len(state) == len(generator.get_state()):
        generator.set_state(state.clone())
    else:
        generator.manual_seed(seed)
