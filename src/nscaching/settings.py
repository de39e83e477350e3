"""Settings that belong to one part of a training run. No import but the standard library's."""

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["uniform", "importance", "top"]


@dataclass(frozen=True)
class CacheSettings:
    """How the negative cache draws negatives, and what a refresh keeps."""

    n1: int = 50
    """Entities cached for each key (nscaching; 0: none, with softmax), or candidates of the
    generator (kbgan)."""
    n2: int = 50
    """Fresh random candidates in each refresh of a key (nscaching; softmax takes its tail)."""
    draw: Strategy = "uniform"
    """How a negative is drawn from the cache (nscaching)."""
    refresh: Literal["importance", "top", "uniform"] = "importance"
    """Which of cache plus fresh candidates survive a refresh (nscaching)."""
    temperature: float = 1.0
    """Divides the scores before the softmax of an importance refresh (nscaching)."""
    lazy: int = 0
    """Refresh the cache only in one epoch out of this plus one (nscaching)."""
    refresh_side: Literal["both", "drawn"] = "both"
    """Which caches of a triple are refreshed: both, or that of the side drawn (nscaching)."""
    shared_candidates: bool = False
    """Whether all keys of a batch and side share the fresh candidates (nscaching)."""
    candidate_rows: Literal["float32", "bfloat16"] = "float32"
    """Precision of the entity rows that a refresh scores (nscaching)."""
    near: int = 0
    """Entities that random walks of one or two steps from the anchor of a query find in the
    graph, beside the cached ones, in each step (nscaching with softmax)."""
    candidates: Literal["set", "slots"] = "set"
    """Candidates as a set, each entity once (the paper), or as slots with repeats (its code)."""
    cache_memory: str | None = None
    """Budget of the caches, such as 8GiB, or 25% of a row for each query: the most visited queries
    keep their own rows, the others of a relation share; None: no budget (nscaching)."""
    cache_place: Literal["auto", "device", "host", "disk"] = "auto"
    """Where the caches lie: on the device, in host memory or in a file; auto: on the device, or in
    host memory where the GPU's is too small (nscaching)."""
    exchange: Literal["scores", "strata"] = "scores"
    """How several processes refresh a cache: candidates of any shard of the entities send scores,
    or a key visits one shard a step, and keeps a part of its row for each (nscaching)."""
    strata: int = 0
    """Shards of the entities that a key visits in turn with exchange strata; 0: one for each
    process (nscaching)."""


@dataclass(frozen=True)
class GeneratorSettings:
    """The model that generates negatives, and how it learns."""

    generator: str = "TransE"
    """Scoring function that makes the negatives (kbgan), or of ``generator_pretrain`` (igan)."""
    generator_lr: float = 0.001
    """Learning rate of the generator (kbgan, igan)."""
    generator_pretrain: str = ""
    """Run folder whose parameters the generator starts from; empty: none (kbgan, igan)."""
    entropy_bonus: float = 1.0
    """Weight of the generator's entropy beside the reward: less draws harder negatives (igan)."""
