"""The names of the files in a run folder."""

from pathlib import Path

from nscaching.errors import UserError
from nscaching.files import PARTIAL
from nscaching.probes.files import SCORES, SNAPSHOT, SNAPSHOTS
from nscaching.runs.checkpoints import CHECKPOINT, CHECKPOINTS
from nscaching.runs.graph_files import TRIPLES, VOCABULARY
from nscaching.runs.settings import CONFIG

METRICS = "metrics.jsonl"
MODEL, CACHE = "model.safetensors", "cache.safetensors"
CARD, PLOT, REPORT = "README.md", "training.png", "report.html"
FILES = {CONFIG, METRICS, SCORES, VOCABULARY, MODEL, CACHE, TRIPLES, CARD, PLOT, REPORT}
FOLDERS = {SNAPSHOTS: SNAPSHOT, CHECKPOINTS: CHECKPOINT}


def has_ended(path: Path) -> bool:
    """Say whether a training run is finished: only then the folder has a card or a plot."""
    return any((path / name).is_file() for name in (CARD, PLOT))


def check_own(path: Path) -> None:
    """Refuse to overwrite a folder that is not a run folder, or that holds other files too."""
    made = all((path / name).is_file() for name in (CONFIG, VOCABULARY))
    if path.is_symlink() or not made:
        raise UserError(f"{path} is not a run folder, so it is not overwritten")
    for file in path.iterdir():
        held = [file]
        pattern = FOLDERS.get(file.name)
        if pattern and file.is_dir() and not file.is_symlink():
            held = [f for f in file.iterdir() if f.is_dir() or not pattern.fullmatch(f.name)]
        elif file.name.removesuffix(PARTIAL) in FILES and not file.is_dir():
            held = []
        for other in held:
            what = f"it holds {other.name}, which is no file of a run"
            raise UserError(f"{other.parent} is not overwritten: {what}")
