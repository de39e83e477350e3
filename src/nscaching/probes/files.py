"""The files of probes in a run folder: scores.jsonl, and snapshots of the cache by epoch."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.files import PARTIAL, append_lines, read_lines, read_tensors, save_tensors, writing

SCORES, SNAPSHOTS = "scores.jsonl", "snapshots"
SNAPSHOT = re.compile(rf"cache-(\d{{6,}})\.safetensors(?:{re.escape(PARTIAL)})?")


def append_scores(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Append the lines of an epoch in one write."""
    if lines:
        append_lines(folder / SCORES, lines)


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """Read the scores of watched triples; empty if none were watched."""
    if not (folder / SCORES).is_file():
        return []
    return read_lines(folder / SCORES, _is_line, "scores")


def save_snapshot(folder: Path, epoch: int, cache: Mapping[str, Tensor]) -> None:
    """Write the cache of an epoch."""
    with writing(folder / SNAPSHOTS):
        (folder / SNAPSHOTS).mkdir(exist_ok=True)
    save_tensors(folder / SNAPSHOTS / f"cache-{epoch:06d}.safetensors", dict(cache))


class Snapshots(Mapping[int, dict[str, Tensor]]):
    """The snapshots in a run folder by epoch; each is read from the disk when used."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[int, Path] = {}
        for file in sorted((folder / SNAPSHOTS).glob("cache-*.safetensors")):
            if found := SNAPSHOT.fullmatch(file.name):
                self.files[int(found[1])] = file

    def __getitem__(self, epoch: int) -> dict[str, Tensor]:
        return read_tensors(self.files[epoch])[0]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.files))

    def __len__(self) -> int:
        return len(self.files)


def remove_snapshots(folder: Path, after: int) -> None:
    """Remove the snapshots after an epoch."""
    for epoch, file in Snapshots(folder).files.items():
        if epoch > after:
            file.unlink()


def _is_line(value: Any) -> bool:  # noqa: ANN401  (JSON may be anything)
    if not isinstance(value, dict) or value.get("side") not in ("head", "tail"):
        return False
    names = all(isinstance(value.get(name), str) for name in ("head", "relation", "tail"))
    differences, top, margin = (value.get(name) for name in ("differences", "top", "margin"))
    if not (names and isinstance(differences, list) and isinstance(top, list)):
        return False
    numbers = [*differences, *top, 0.0 if margin is None else margin]
    sound = len(differences) > 1 and isinstance(value.get("epoch"), int)
    return sound and all(isinstance(number, int | float) for number in numbers)
