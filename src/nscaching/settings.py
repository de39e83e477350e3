"""Settings of single parts of a training. No import but the standard library's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CacheSettings", "Strategy"]

Strategy = Literal["uniform", "importance", "top"]


@dataclass(frozen=True)
class CacheSettings:
    """How a negative cache draws negatives, and what a refresh keeps."""

    n1: int = 50
    """Entities cached for each key."""
    n2: int = 50
    """Fresh random candidates in each refresh of a key."""
    draw: Strategy = "uniform"
    """How a negative is drawn from the cache."""
    refresh: Strategy = "importance"
    """Which of cached entities plus fresh candidates survive a refresh."""
    temperature: float = 1.0
    """Divides the scores before the softmax of an importance refresh."""
    candidates: Literal["set", "slots"] = "set"
    """Candidates as a set, each entity once (the paper), or as slots with repeats (its code)."""
    shared_candidates: bool = False
    """Whether all keys of a batch and side share the fresh candidates."""
    candidate_rows: Literal["float32", "bfloat16"] = "float32"
    """Precision of the entity rows that a refresh scores."""
