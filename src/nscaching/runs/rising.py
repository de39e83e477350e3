"""Whether a longer training would have been better, by the curve of the validation MRR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nscaching.errors import flag
from nscaching.runs.folder import Record

if TYPE_CHECKING:
    from nscaching.runs.run import Run

LAST, MORE = 0.25, 1.01  # in the last part of the epochs the MRR rose to so many times the best


def still_rising(history: Sequence[Record], epochs: int) -> bool:
    """Say whether the validation MRR rose to the last of so many epochs, by over a hundredth."""
    found = [(r["epoch"], float(r["mrr"])) for r in history if r.get("split") == "valid"]
    before = [mrr for epoch, mrr in found if epoch <= (1 - LAST) * epochs]
    if sum("split" not in record for record in history) < epochs or not before:
        return False  # stopped, or too short for a curve
    last = found[-1][1]
    return last == max(mrr for _, mrr in found) and last > MORE * max(before)


def advice(run: Run) -> str:
    """Return a sentence for a run that would gain by more epochs, or an empty text."""
    if not still_rising(run.history, run.config.epochs):
        return ""
    longer = f"{flag('epochs')} {2 * run.config.epochs}"
    return f"validation MRR was still rising at the end: train longer, such as {longer}"
