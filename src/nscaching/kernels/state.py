"""The state of the parts of a training run: the content of a checkpoint."""

from typing import Any

import torch
from torch import Tensor

PIECE = 1 << 24  # numbers that are looked at together

State = dict[str, Any]
"""Tensors and plain values by name. The names of a part begin with the part's name and a dot."""


def join(**parts: State) -> State:
    return {f"{name}.{key}": value for name, state in parts.items() for key, value in state.items()}


def part(state: State, name: str) -> State:
    prefix = f"{name}."
    return {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}


def is_finite(tensor: Tensor) -> bool:
    """Say whether all numbers are finite, piece by piece: marks of a whole table are many bytes."""
    pieces = tensor.detach().reshape(-1).split(PIECE)
    return all(bool(torch.isfinite(piece).all()) for piece in pieces)
