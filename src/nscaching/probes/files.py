"""The files of probes in a run folder: scores.jsonl, and snapshots of the cache by epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.files import PARTIAL, append_lines, read_lines, read_tensors, save_tensors, writing

if TYPE_CHECKING:
    from torch import Tensor

SCORES, SNAPSHOTS = "scores.jsonl", "snapshots"
SNAPSHOT = re.compile(rf"cache-(\d{{6,}})\.safetensors(?:{re.escape(PARTIAL)})?")


def append_scores(folder: Path, lines: list[dict[str, Any]]) -> None:
    if lines:
        append_lines(folder / SCORES, lines)


def read_scores(folder: Path) -> list[dict[str, Any]]:
    if not (folder / SCORES).is_file():
        return []
    return read_lines(folder / SCORES, _is_line, "scores")


def save_snapshot(folder: Path, epoch: int, cache: Mapping[str, Tensor]) -> None:
    with writing(folder / SNAPSHOTS):
        (folder / SNAPSHOTS).mkdir(exist_ok=True)
    save_tensors(folder / SNAPSHOTS / f"cache-{epoch:06d}.safetensors", dict(cache))


class Snapshots(Mapping[int, "dict[str, Tensor]"]):
    """The snapshots in a run folder by epoch; each is read from the disk when used."""

    def __init__(self, folder: Path) -> None:
        files = (folder / SNAPSHOTS).glob("cache-*.safetensors")
        epochs = {file: SNAPSHOT.fullmatch(file.name) for file in files}
        self.files = {int(epoch[1]): file for file, epoch in epochs.items() if epoch}

    def __getitem__(self, epoch: int) -> dict[str, Tensor]:
        return read_tensors(self.files[epoch])[0]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.files))

    def __len__(self) -> int:
        return len(self.files)


def remove_snapshots(folder: Path, after: int) -> None:
    for epoch, file in Snapshots(folder).files.items():
        if epoch > after:
            file.unlink()


def _is_line(value: Any) -> bool:  # noqa: ANN401  (JSON may be anything)
    kinds: dict[str, Any] = {"epoch": int, "head": str, "relation": str, "tail": str}
    kinds |= {"differences": list, "top": list, "margin": int | float | None}
    if not isinstance(value, dict) or value.get("side") not in ("head", "tail"):
        return False
    if not all(isinstance(value.get(name), kind) for name, kind in kinds.items()):
        return False
    numbers = [*value["differences"], *value["top"]]
    return len(value["differences"]) > 1 and all(isinstance(n, int | float) for n in numbers)
