"""The probabilities of a run, and the small file of its folder that keeps what they follow from."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.data.frames import Passed
from nscaching.errors import UserError, reading
from nscaching.evaluation.calibration import Calibration, from_values, to_values
from nscaching.evaluation.ranks import Floats
from nscaching.files import read_text, write_text
from nscaching.runs.folder import CALIBRATION

if TYPE_CHECKING:
    from nscaching.runs.run import Run

FORMAT = 2


def calibrated(run: Run) -> Calibration | None:
    """Return what turns scores into probabilities: the run's own, or else fitted now and kept.

    None if the graph has no validation triples, true and false ones. Nothing is written.
    """
    from nscaching.evaluation.calibrate import calibrate

    if run.calibration is None:
        run.calibration = calibrate(run.model, run.graph)
    return run.calibration


def probabilities(run: Run, triples: Passed, prior: float | None = None) -> Floats:
    """Return the probability [n] of triples, given as ``KnowledgeGraph.from_triples`` takes them.

    ``prior`` is the share of true triples among those that are asked; None: as among the
    validation triples and their negatives.
    """
    ids = run.graph.ids(triples)
    fitted, scores = needed(run), run.score(ids)
    return fitted.probabilities(scores, ids[:, 1], prior)


def needed(run: Run) -> Calibration:
    """Return the calibration, or say why there is none."""
    fitted = calibrated(run)
    if fitted is None:
        what = "probabilities need validation triples, true and false ones"
        raise UserError(f"{run.graph.name} has too few of them: {what}")
    return fitted


def save_calibration(run: Run) -> Path:
    """Write the calibration into the folder of a run that is saved; return its path."""
    if run.path is None:
        raise UserError("the run is not saved: there is no folder to write into")
    path = run.path / CALIBRATION
    write_calibration(path, needed(run), run.best_epoch)
    return path


def keep_calibration(run: Run, folder: Path) -> None:
    """Fit a calibration and write it, at the end of a training; a failure is a warning."""
    try:
        fitted = calibrated(run)
    except Exception as error:  # the parameters are saved: probabilities can be fitted later
        warnings.warn(f"{folder / CALIBRATION} was not written: {error}", stacklevel=2)
        return
    if fitted is not None:
        write_calibration(folder / CALIBRATION, fitted, run.best_epoch)


def write_calibration(path: Path, fitted: Calibration, epoch: int) -> None:
    values = {"format": FORMAT, "epoch": epoch} | to_values(fitted)
    write_text(path, json.dumps(values) + "\n")


def read_calibration(path: Path, relations: int, epoch: int) -> Calibration | None:
    """Read the file of a run folder; None if there is none, or if it is of other parameters."""
    if not path.is_file():
        return None
    with reading(path):
        values = json.loads(read_text(path))
    if isinstance(values, dict) and values.get("format", 1) != FORMAT:
        return None  # of another version: it is fitted again
    try:
        found = from_values(values, relations)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not the calibration of this run") from None
    return found if values.get("epoch") == epoch else None
