"""What is checked of the splits of a graph, in pieces that take little memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nscaching.data.index import ROWS, Ids, distinct
from nscaching.errors import UserError, counted

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class CheckedSplits:
    """Splits without repeats, and what was found in them."""

    splits: dict[str, Ids]
    notes: list[str] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)


def check_splits(
    entities: Sequence[str],
    relations: Sequence[str],
    splits: Mapping[str, Ids],
    step: Callable[[], None] = lambda: None,
) -> CheckedSplits:
    """Refuse ids that are out of range, drop repeats, note what spoils a ranking."""
    sizes = len(entities), len(relations), len(entities)
    checked = CheckedSplits({})
    for split in SPLITS:
        step()
        given = np.asarray(splits.get(split, ())).reshape(-1, 3)
        if not in_range(given, *sizes):
            raise UserError(f"the {split} split holds ids that are out of range")
        clean = distinct(given.astype(np.int32, copy=False))
        checked.splits[split] = clean
        if dropped := len(given) - len(clean):
            checked.notes.append(f"{counted(dropped, 'duplicate triple')} dropped from {split}")
            checked.repeats[split] = dropped
    step()
    if shared := _shared(len(entities), checked.splits):
        what = counted(shared, "triple of valid/test stands", "triples of valid/test stand")
        they = "it is" if shared == 1 else "they are"
        checked.notes.append(f"{what} in another split too; {they} kept")
    checked.notes.extend(_unseen_notes(entities, relations, checked.splits))
    return checked


def _shared(entities: int, splits: Mapping[str, Ids]) -> int:
    """Return how many triples of valid and test stand in another split too."""
    train, held_out = splits["train"], np.concatenate([splits["valid"], splits["test"]])
    # Only training triples of held-out heads and tails can be held out too.
    of_head, of_tail = (_occurring(entities, [column], held_out) for column in (0, 2))
    alike = [
        part[of_head[part[:, 0]] & of_tail[part[:, 2]]]
        for part in (train[begin : begin + ROWS] for begin in range(0, len(train), ROWS))
    ]
    together = np.concatenate([*alike, held_out])
    return len(together) - len(distinct(together))


def in_range(rows: npt.NDArray[np.integer], *sizes: int) -> bool:
    """Say whether each column of some rows [n, k] holds whole numbers from 0 to its size - 1."""
    return not len(rows) or all(
        column.min() >= 0 and column.max() < size
        for column, size in zip(rows.T, sizes, strict=True)
    )


def _unseen_notes(
    entities: Sequence[str], relations: Sequence[str], splits: Mapping[str, Ids]
) -> Iterator[str]:
    """Yield a line on the entities, and one on the relations, that training lacks."""
    kinds = (("entity", "entities", entities, (0, 2)), ("relation", "relations", relations, (1,)))
    for one, many, names, columns in kinds:
        seen = _occurring(len(names), columns, splits["train"])
        asked = _occurring(len(names), columns, splits["valid"], splits["test"])
        unseen = np.flatnonzero(asked & ~seen)
        if len(unseen):
            ends = (" of valid/test is", " of valid/test are")
            what = counted(len(unseen), one + ends[0], many + ends[1])
            they = "it stays" if len(unseen) == 1 else "they stay"
            example = repr(names[unseen[0]])
            yield f"{what} not in train (such as {example}); {they} in the ranking"


def _occurring(size: int, columns: Sequence[int], *parts: Ids) -> npt.NDArray[np.bool_]:
    found = np.zeros(size, dtype=bool)
    for part in parts:
        for begin in range(0, len(part), ROWS):
            for column in columns:
                found[part[begin : begin + ROWS, column]] = True
    return found


def occurrences(triples: Ids, *columns: int) -> npt.NDArray[np.int64]:
    """Count how often each id occurs in some columns of the triples."""
    size = 1 + max(int(triples[:, column].max(initial=-1)) for column in columns)
    count = np.zeros(size, dtype=np.int64)
    step = max(ROWS, size)  # a count takes as long as the longer of rows and ids
    for begin in range(0, len(triples), step):
        for column in columns:
            count += np.bincount(triples[begin : begin + step, column], minlength=size)
    return count
