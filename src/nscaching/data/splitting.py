"""One file of triples → three splits, by seed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nscaching.data.checks import SPLITS, occurrences
from nscaching.data.index import Ids, distinct
from nscaching.data.readers.blocks import Progress, stepping
from nscaching.errors import counted

COMPILED_FROM = 1_000_000  # triples; a split of fewer is faster than the import of Numba


def split_noted(
    triples: Ids,
    seed: int,
    name: str,
    notes: list[str],
    repeats: dict[str, int],
    progress: Progress | None = None,
) -> dict[str, Ids]:
    """Split triples by seed, each once, and note what was done."""
    step = stepping(progress, f"splitting {name}", 4)
    step()
    once = distinct(triples)
    if dropped := len(triples) - len(once):
        notes.append(f"{counted(dropped, 'duplicate triple')} dropped from {name}")
        repeats[name] = dropped
    splits = split_triples(once, seed, step=step)
    sizes = " / ".join(f"{len(splits[split]):,}" for split in SPLITS)
    notes.append(f"split by seed {seed} into train / valid / test: {sizes} triples")
    return splits


def split_triples(
    triples: Ids, seed: int, share: float = 0.05, step: Callable[[], None] = lambda: None
) -> dict[str, Ids]:
    """Hold out ``share`` of the triples for valid and as many for test, by seed.

    A triple is held out only while its head, tail and relation still occur in train, so that
    no unseen name is ranked; a sparse graph may therefore yield fewer than asked.
    """
    step()
    held_out = np.empty(2 * round(share * len(triples)), np.int64)
    order = np.arange(len(triples), dtype=np.int32 if len(triples) < 2**31 else np.int64)
    np.random.default_rng(seed).shuffle(order)
    step()
    entity_left, relation_left = occurrences(triples, 0, 2), occurrences(triples, 1)
    if len(triples) >= COMPILED_FROM:
        from numba import njit

        count = njit(cache=True)(hold_out)(triples, order, entity_left, relation_left, held_out)
    else:
        lists = order.tolist(), entity_left.tolist(), relation_left.tolist()
        count = hold_out(triples, *lists, held_out)
    step()
    half = (count + 1) // 2
    split = np.zeros(len(triples), dtype=np.int8)  # 0, 1, 2: train, valid, test
    split[held_out[:half]] = 1
    split[held_out[half:count]] = 2
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def hold_out(triples: Ids, order: Any, entity_left: Any, relation_left: Any, held_out: Any) -> int:  # noqa: ANN401
    """Fill ``held_out`` with rows that may be held out, in ``order``; return how many.

    Takes lists, or arrays when it is compiled.
    """
    count = 0
    for row in order:
        if count == len(held_out):
            break
        head, relation, tail = triples[row]
        needed = 3 if head == tail else 2  # a loop takes two occurrences of one entity
        if (
            entity_left[head] >= needed
            and entity_left[tail] >= needed
            and relation_left[relation] >= 2
        ):
            entity_left[head] -= 1
            entity_left[tail] -= 1
            relation_left[relation] -= 1
            held_out[count] = row
            count += 1
    return count
