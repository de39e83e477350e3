"""The parts of a figure: pages of panels with lines of points, or a table."""

from dataclasses import dataclass
from typing import Any

MOST_POINTS = 300  # of a line: more than a reader sees, few enough for a file in a repository

Row = dict[str, Any]
"""A point with its description: a line of the CSV file."""


@dataclass(frozen=True)
class Line:
    """Points that belong together; the image and the CSV file have the same points."""

    label: str
    rows: list[Row]
    x: str
    y: str
    """The columns that are drawn against each other."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x_label: str
    y_label: str
    lines: list[Line]
    title: tuple[str, ...] = ()
    """The lines of the title."""
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    """Whether the y axis begins at 0."""
    ordered: bool = False
    """Whether lines are steps of one quantity: shades of one scale instead of distinct colours."""
    legend: bool = False
    """Whether the panel has its own legend, and no entries in the legend of the page."""
    mark: float | None = None
    mark_label: str = ""
    """A dashed vertical line, and what the legend calls it."""
    values: bool = False
    """Whether values are written beside their points."""


@dataclass(frozen=True)
class Table:
    """Words in rows and columns; some cells are highlighted."""

    headings: list[str]
    cells: list[list[str]]
    marked: set[tuple[int, int]]
    """Row and column of the highlighted cells."""
    narrow: int
    """Number of leading columns that hold numbers."""
    note: str
    """The text below the table."""
    rows: list[Row]
    """The rows of the CSV file."""


@dataclass(frozen=True)
class Page:
    """One image with its CSV file."""

    panels: list[Panel]
    columns: int
    title: str = ""
    suffix: str = ""
    """The end of the file names, where a figure has several pages."""
    panel_height: float = 2.9
    """In inches."""
    table: Table | None = None
    """A table instead of panels."""

    @property
    def rows(self) -> list[Row]:
        """The rows of the CSV file; a point that two panels show counts once."""
        if self.table:
            return self.table.rows
        lines = [line for panel in self.panels for line in panel.lines]
        return list({tuple(row.items()): row for line in lines for row in line.rows}.values())


def evenly(things: list[Any], most: int = MOST_POINTS) -> list[Any]:
    """Return at most so many items, evenly chosen, the first and the last among them."""
    if len(things) <= most:
        return things
    return [things[i * (len(things) - 1) // (most - 1)] for i in range(most)]
