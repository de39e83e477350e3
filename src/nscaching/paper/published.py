"""The figures that the paper prints, as data."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

__all__ = ["Row", "link_prediction", "misprint", "triplet_classification"]

FOLDER = Path(__file__).parent

Row = tuple[str, str, str, str]
"""Data, model, sampler and start; the start is empty where there is no choice of it."""

MISPRINTS = {
    (
        ("wn18", "TransE", "nscaching", "pretrain"),
        "hits@10",
    ): "66.62 is a misprint of the paper: it stands in bold as the best, beside values above 94."
}


@functools.cache
def link_prediction() -> dict[Row, dict[str, float]]:
    """Return MRR, MR and Hit@10 (in percent) of each row, where the paper has them."""
    columns = {"mrr": "mrr", "mr": "mr", "hits@10": "hit10_percent"}
    found = {}
    for line in _lines("link_prediction.csv"):
        row = (line["dataset"].lower(), line["model"], line["sampler"].lower(), line["start"])
        found[row] = {name: float(line[key]) for name, key in columns.items() if line[key]}
    return found


@functools.cache
def triplet_classification() -> dict[Row, dict[str, float]]:
    """Return the accuracy (in percent) of each row."""
    found = {}
    for line in _lines("triplet_classification.csv"):
        for column, value in line.items():
            if column.endswith("_accuracy_percent"):
                data = column.partition("_")[0].lower()
                row = (data, line["model"], line["sampler"].lower(), line["start"])
                found[row] = {"accuracy": float(value)}
    return found


def misprint(row: Row, measure: str) -> str:
    """Say what is wrong with a figure as it is printed; empty: nothing is known to be."""
    return MISPRINTS.get((row, measure), "")


def _lines(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
