"""What the paper has a table of: its measures, and the cells it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nscaching.paper import published as paper

__all__ = ["TASKS", "Measure", "Task"]


@dataclass(frozen=True)
class Measure:
    """One figure of a cell, and how the paper prints it."""

    name: str
    """As it stands in the results of a run."""
    heading: str
    digits: int
    scale: float = 1.0
    lower_is_better: bool = False


@dataclass(frozen=True)
class Task:
    """A table of the paper; its first measure says whether a cell is above or below."""

    name: str
    title: str
    about: str
    """What is measured, in a few words."""
    models: tuple[str, ...]
    data: tuple[str, ...]
    measures: tuple[Measure, ...]
    paper: Callable[[], dict[paper.Row, dict[str, float]]]


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "link-prediction",
            "Link prediction",
            "All test triples, filtered ranking of both sides",
            ("TransE", "TransH", "TransD", "DistMult", "ComplEx"),
            ("wn18", "wn18rr", "fb15k", "fb15k237"),
            (
                Measure("mrr", "MRR", 4),
                Measure("mr", "MR", 0, lower_is_better=True),
                Measure("hits@10", "Hit@10", 2, scale=100.0),
            ),
            paper.link_prediction,
        ),
        Task(
            "triplet-classification",
            "Triplet classification",
            "True and false test triples, told apart by a threshold per relation from validation",
            ("TransD", "ComplEx"),
            ("wn18rr", "fb15k237"),
            (Measure("accuracy", "accuracy", 2, scale=100.0),),
            paper.triplet_classification,
        ),
    )
}
