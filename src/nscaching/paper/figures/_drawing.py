"""Pages of panels with lines of points, or a table: drawn in one style, the same every time."""

from __future__ import annotations

import csv
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.files import replacing
from nscaching.runs.escaping import shorten
from nscaching.runs.plots import COLOURS, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH = 9.0  # inches: shown 900 pixels wide, text of 10 points is 14 pixels high
NARROWEST = 2.25  # inches of a column: with more of them, a page is wider
LETTERS = 11  # per inch of a title
LINE = 0.32  # height of a line of a table in inches
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<P*"
FEW_POINTS = 15  # points have markers up to this number
MARGIN, GREY = "#B00020", "#555555"
STYLE = Path(__file__).with_name("style.mplstyle")
MOST_POINTS = 300  # of a line: more than a reader sees, few enough for a file in a repository

Row = dict[str, Any]  # a point with its description: a line of the CSV file


@dataclass(frozen=True)
class Line:
    """Points that belong together; the image and the CSV file have the same points."""

    label: str
    rows: list[Row]
    x: str  # the columns that are drawn against each other
    y: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x_label: str
    y_label: str
    lines: list[Line]
    title: tuple[str, ...] = ()  # one text for each of its lines
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False  # whether the y axis begins at 0
    ordered: bool = False  # whether lines are steps of one quantity: shades of one scale
    legend: bool = False  # whether it has its own legend, and no entries in that of the page
    mark: float | None = None  # x of a dashed vertical line
    mark_label: str = ""  # what the legend calls that line
    values: bool = False  # whether values are written beside their points


@dataclass(frozen=True)
class Table:
    """Words in rows and columns; some cells are highlighted."""

    headings: list[str]
    cells: list[list[str]]
    marked: set[tuple[int, int]]  # row and column of the highlighted cells
    narrow: int  # number of leading columns that hold numbers
    note: str  # the text below the table
    rows: list[Row]  # of the CSV file


@dataclass(frozen=True)
class Page:
    """One image with its CSV file."""

    panels: list[Panel]
    columns: int
    title: str = ""
    suffix: str = ""  # the end of the file names, where a figure has several pages
    panel_height: float = 2.9  # in inches
    table: Table | None = None  # instead of panels

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


def write(page: Page, png: Path, svg: Path, data: Path) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure  # the object alone: no display, no global state

    with style.context(STYLE), warnings.catch_warnings():
        # A name in a script without a font, or one longer than the figure is wide.
        warnings.filterwarnings("ignore", category=UserWarning, module="matplotlib")
        warnings.filterwarnings("ignore", "Glyph .* missing|constrained_layout not applied")
        width = max(WIDTH, NARROWEST * page.columns)
        rows = math.ceil(len(page.panels) / page.columns)
        height = (
            LINE * (len(page.table.cells) + 3) if page.table else page.panel_height * rows + 0.5
        )
        figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
        if page.title:
            figure.suptitle(plain(shorten(page.title, int(LETTERS * WIDTH))), fontsize=11)
        if page.table:
            _draw_table(figure.subplots(), page.table, width)
        else:
            _draw_panels(figure, page, rows, width / page.columns)
        figure.draw_without_rendering()  # ticks follow the first layout, and the second the ticks
        with replacing(png, shared=True) as partial:
            figure.savefig(partial, format="png")
        figure.set_layout_engine("none")  # keep the layout: computing it takes half of the time
        with replacing(svg, shared=True) as partial:
            figure.savefig(partial, format="svg", metadata={"Date": None})
    with (
        replacing(data, shared=True) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.DictWriter(file, list(page.rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in page.rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def _draw_panels(figure: Figure, page: Page, rows: int, width: float) -> None:
    axes = figure.subplots(rows, page.columns, squeeze=False).ravel()
    lines = [line for panel in page.panels if not panel.legend for line in panel.lines]
    names = list(dict.fromkeys(line.label for line in lines))
    shared: dict[str, Any] = {}
    for frame, panel in zip(axes, page.panels, strict=False):
        handles = _panel(frame, panel, names, width)
        if panel.legend:
            share = 0.5 if page.columns > 1 else 1.0
            _legend(frame, handles, share, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        else:
            shared |= {name: handle for name, handle in handles.items() if name not in shared}
    for frame in axes[len(page.panels) :]:
        frame.remove()
    if len(shared) > 1:
        _legend(figure, shared, 1.0, loc="outside lower center")


def _legend(place: Axes | Figure, handles: dict[str, Any], share: float, **where: Any) -> None:  # noqa: ANN401
    letters = 105 * share / (max(map(len, handles)) + 9)
    columns = max(1, min(len(handles), int(letters)))
    names = list(map(plain, handles))
    place.legend(handles.values(), names, frameon=False, ncols=columns, handlelength=3, **where)


def _draw_table(axes: Axes, table: Table, width: float) -> None:
    narrow = 0.8  # inches of a column of numbers
    wide = (width - 0.3 - narrow * table.narrow) / (len(table.headings) - table.narrow)
    columns = range(len(table.headings))
    left = [min(j, table.narrow) * narrow + max(0, j - table.narrow) * wide for j in columns]
    for i, cells in enumerate([table.headings, *table.cells]):
        for j, text in enumerate(cells):
            place = axes.text(left[j], -i, "", size=8.5, color=GREY if i == 0 else "black")
            if (i - 1, j) in table.marked:
                place.set(color=COLOURS[0], weight="bold")
            _fit(place, text, 0.92 * (wide if i else width))  # few columns have headings
    axes.axhline(-0.35, color=GREY, lw=0.8)
    note = axes.text(0, -len(table.cells) - 1.2, "", size=8, color=GREY)
    _fit(note, table.note, 0.92 * width)
    axes.set_xlim(0, width - 0.3)
    axes.set_ylim(-len(table.cells) - 1.5, 0.7)
    axes.axis("off")


def _fit(place: Text, text: str, inches: float) -> None:
    """Write a text, shortened until it fits: letters are not all of one width."""
    text = shorten(text, 500)
    most, pixels = len(text), inches * place.get_figure().dpi  # type: ignore[union-attr]
    place.set_text(plain(text))
    while most > 1 and place.get_window_extent().width > pixels:
        most = min(most - 1, int(0.95 * most))
        place.set_text(plain(shorten(text, most)))


def _panel(axes: Axes, panel: Panel, names: list[str], width: float) -> dict[str, Any]:
    from matplotlib import colormaps

    handles = {}
    for i, line in enumerate(panel.lines):
        look = _look(names.index(line.label) if line.label in names else i)
        if panel.ordered:  # from dark to light, which the colour-blind see as a scale
            shade = colormaps["viridis"](0.88 * i / max(1, len(panel.lines) - 1))
            look = {**_look(i), "color": shade}
        if len(line.rows) > FEW_POINTS:
            look["marker"] = ""
        x, y = ([row[column] for row in line.rows] for column in (line.x, line.y))
        (handles[line.label],) = axes.plot(x, y, ms=4, **look)
        for point in zip(x, y, strict=True) if panel.values else ():
            above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
            axes.annotate(f"{point[1]:.3f}", point, (0, 6), **above)
    _scale(axes, panel, ticks=max(3, min(6, round(1.6 * width))))
    if panel.mark is not None:
        mark = axes.axvline(panel.mark, color=MARGIN, ls="--", lw=1.2)
        handles[panel.mark_label] = mark  # words beside it would lie on some curve
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title("\n".join(plain(shorten(line, int(LETTERS * width))) for line in panel.title))
    return handles


def _scale(axes: Axes, panel: Panel, ticks: int) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    places = {row[line.x] for line in panel.lines for row in line.rows}
    heights = {row[line.y] for line in panel.lines for row in line.rows}
    whole = all(isinstance(x, int) for x in places)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    if panel.log_x and min(places) > 0:
        axes.set_xscale("log")
        # Powers of ten alone may leave only one tick in sight.
        close = max(places) / min(places) < 1000
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if close else (1,)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # seconds, not powers
        axes.xaxis.set_minor_formatter(NullFormatter())
    above = [y for y in heights if y > 0]
    if panel.log_y and above:
        # 0 has no logarithm, and a reader must not miss it: it lies below the least of the others.
        linear = {"linthresh": min(above), "linscale": 0.3} if 0 in heights else {}
        axes.set_yscale("symlog" if linear else "log", **linear)
    if whole and not panel.log_x:
        axes.set_xlim(left=0)
    if panel.from_zero:  # with room for a line at 0
        axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])
    if panel.values:
        axes.set_xlim(right=1.1 * max(places))
        axes.set_xticks(sorted(places))
        axes.set_ylim(top=axes.get_ylim()[1] * 1.12)


def _look(i: int) -> dict[str, Any]:
    return {
        "color": COLOURS[i % len(COLOURS)],
        "ls": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
    }
