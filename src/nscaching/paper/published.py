"""The tables of the paper as data: the cells, the measures and the values that the paper prints."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nscaching.config import read_toml

Row = tuple[str, str, str, str]
"""Data, model, sampler and start; the start is empty where the paper has no choice of start."""

MISPRINTS: dict[tuple[Row, str], str] = {
    (("wn18", "TransE", "nscaching", "pretrain"), "hits@10"): (
        "66.62 is a misprint of the paper: it stands in bold as the best, beside values above 94."
    )
}
"""What is wrong with a printed value, by row and measure."""


@dataclass(frozen=True)
class Measure:
    """One value of a cell, and how the paper prints it."""

    name: str  # in the results of a run
    heading: str
    digits: int
    scale: float = 1.0

    def text(self, value: float | None, sign: str = "") -> str:
        """Write a value with the paper's number of digits; ``sign="+"`` shows the sign."""
        return "–" if value is None else f"{value:{sign},.{self.digits}f}"


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    The first measure, of which more is better, decides whether a cell is above or below.
    """

    name: str
    title: str
    about: str  # what is measured, in a few words
    models: list[str]
    data: list[str]
    measures: list[Measure]

    @cached_property
    def published(self) -> dict[Row, dict[str, float]]:
        """The paper's values by row and measure; the paper leaves some measures out."""
        path = Path(__file__).with_name(f"{self.name}.csv")
        with path.open(encoding="utf-8", newline="") as file:
            return {
                (line["data"], line["model"], line["sampler"], line["start"]): {
                    measure.name: float(line[measure.name])
                    for measure in self.measures
                    if line[measure.name]
                }
                for line in csv.DictReader(file)
            }


TABLES = {
    name: PaperTable(name, **values | {"measures": [Measure(**m) for m in values["measures"]]})
    for name, values in read_toml(Path(__file__).with_name("tables.toml")).items()
}


def place(name: str, order: Sequence[str]) -> tuple[int, str]:
    """Return a key that sorts names: first those of ``order`` as there, then others by name."""
    return (order.index(name) if name in order else len(order)), name


def paper_epochs(sampler: str) -> int:
    return 3000 if sampler == "bernoulli" else 1000
