"""What a training takes of the disk at most, against what is stated beforehand.

python benchmarks/disk.py [WHERE]

A checkpoint follows each step. Files are counted whenever one is about to get its name: then an old
one and a new one are there at once.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from nscaching import KnowledgeGraph, files, train
from nscaching.config import TrainConfig
from nscaching.training import recorder as recording
from nscaching.training.memory import Statement

SETTINGS = {"dim": 50, "n1": 10, "n2": 10, "epochs": 2, "validate_every": 1, "batch_size": 2048}
TRAININGS: tuple[dict[str, Any], ...] = (
    {"model": "TransE"},
    {"model": "TransD"},
    {"model": "TransR", "dim": 20},
    {"model": "DistMult", "kernels": "reference"},
    {"model": "ComplEx", "sampler": "kbgan"},
    {"model": "TransH", "sampler": "igan"},
    {"model": "ComplEx", "objective": "1vsall", "sampler": "none", "optimizer": "adagrad"},
    {"model": "RotatE", "sampler": "self-adversarial"},
)


def measure(graph: KnowledgeGraph, config: TrainConfig) -> tuple[int, int]:
    """Train, and return the most bytes that checkpoints and that all files took."""
    most = [0, 0]
    replace = files.os.replace

    def looking(source: Path, target: Path) -> None:
        about = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
        sizes = {each.st_ino: each.st_size for each in about.values()}  # a link takes no room
        shared = {each.st_ino for file, each in about.items() if ".best." in file.name}
        kept = {e.st_ino for file, e in about.items() if file.parent.name == "checkpoints"}
        saved = sum(sizes[number] for number in kept - shared)
        most[:] = max(most[0], saved), max(most[1], sum(sizes.values()))
        replace(source, target)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        files.os.replace = looking  # type: ignore[assignment]
        try:
            train(graph, config, out=folder, checkpoint_every=1e-9)
        finally:
            files.os.replace = replace
    return most[0], most[1]


def main() -> None:
    """Print a table."""
    recording.SHARE = float("inf")  # checkpoints may take all the time
    graph = KnowledgeGraph.load(sys.argv[1] if len(sys.argv) > 1 else "world")
    print("| | checkpoints: stated | taken | all files: stated | taken |\n|---|---|---|---|---|")
    for asked in TRAININGS:
        config = TrainConfig.from_dict({**SETTINGS, "device": "cpu", "threads": 1, **asked})
        items = Statement(graph, config, Path()).items
        stated = {item.what: item.bytes for item in items if item.place == "disk"}
        saved, every = measure(graph, config)
        sizes = stated["run folder: checkpoints"], saved, sum(stated.values()), every
        words = ", ".join(str(value) for name, value in asked.items() if name != "dim")
        print(f"| {words} | " + " | ".join(f"{size / 1e6:.1f} MB" for size in sizes) + " |")


if __name__ == "__main__":
    main()
