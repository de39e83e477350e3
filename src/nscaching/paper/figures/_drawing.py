"""How pages look: one style for all figures, and files that come out the same every time."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.paper.figures._pages import Line, Page, Panel, Table
from nscaching.runs.escaping import shorten
from nscaching.runs.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["plain", "write"]

WIDTH = 9.0  # inches: shown 900 pixels wide, text of 10 points is 14 pixels high
NARROWEST = 2.25  # inches of a column: with more of them, a page is wider
LETTERS = 11  # of a title in an inch
LINE = 0.32  # inches that a line of a table is high
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<P*"
FEW_POINTS = 15  # points are marked where there are not more
MARGIN, GREY = "#B00020", "#555555"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "nscaching",  # the same ids in the file every time
}

Look = dict[str, Any]


def write(page: Page, png: Path, svg: Path, data: Path) -> None:
    """Draw a page and write the points that it shows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # the object alone: no display, no global state

    with rc_context(STYLE), warnings.catch_warnings():
        # A name in a script without a font, or one longer than the figure is wide.
        warnings.filterwarnings("ignore", category=UserWarning, module="matplotlib")
        warnings.filterwarnings("ignore", "Glyph .* missing|constrained_layout not applied")
        rows = math.ceil(len(page.panels) / page.columns)
        width, height = _width(page), page.panel_height * rows + 0.5
        if page.table:
            height = LINE * (len(page.table.cells) + 3)
        figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
        if page.table:
            _write_table(figure.subplots(), page.table, width)
            _title(figure, page)
        else:
            _fill(figure, page, rows)
        figure.draw_without_rendering()  # ticks follow the first layout, and the second the ticks
        figure.savefig(png)
        figure.set_layout_engine("none")  # stays as it is: to lay it out takes half of the time
        figure.savefig(svg, metadata={"Date": None})
    with data.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.DictWriter(file, list(page.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in page.rows)


def _fill(figure: Figure, page: Page, rows: int) -> None:
    axes = figure.subplots(rows, page.columns, squeeze=False).ravel()
    names = list(
        dict.fromkeys(
            line.label for panel in page.panels if not panel.legend for line in panel.lines
        )
    )
    handles: dict[str, Any] = {}
    width = _width(page) / page.columns
    for frame, panel in zip(axes, page.panels, strict=False):
        drawn = _panel(frame, panel, names, width)
        if panel.legend:
            _legend(frame, drawn, 0.5 if page.columns > 1 else 1.0)
        else:
            handles |= {name: handle for name, handle in drawn.items() if name not in handles}
    for frame in axes[len(page.panels) :]:
        frame.remove()
    _title(figure, page)
    if len(handles) > 1:
        figure.legend(
            handles.values(), map(plain, handles), loc="outside lower center", frameon=False,
            ncols=_columns(list(handles), 1.0), handlelength=3,
        )  # fmt: skip


def _write_table(axes: Axes, table: Table, width: float) -> None:
    """Write a table over so many inches; what stands out is bold and of another colour."""
    narrow = 0.8  # inches of a column of numbers
    wide = (width - 0.3 - narrow * table.narrow) / (len(table.headings) - table.narrow)
    columns = range(len(table.headings))
    left = [min(j, table.narrow) * narrow + max(0, j - table.narrow) * wide for j in columns]
    for i, cells in enumerate([table.headings, *table.cells]):
        for j, text in enumerate(cells):
            look: Look = {"color": GREY if i == 0 else "black"}
            if (i - 1, j) in table.marked:
                look = {"color": COLOURS[0], "weight": "bold"}
            room = wide if i else width  # few columns have headings
            _fit(axes.text(left[j], -i, "", size=8.5, **look), text, 0.92 * room)
    axes.axhline(-0.35, color=GREY, lw=0.8)
    note = axes.text(0, -len(table.cells) - 1.2, "", size=8, color=GREY)
    _fit(note, table.note, 0.92 * width)
    axes.set_xlim(0, width - 0.3)
    axes.set_ylim(-len(table.cells) - 1.5, 0.7)
    axes.axis("off")


def _fit(place: Text, text: str, inches: float) -> None:
    """Write a text, shortened until it is not wider: letters are not all of one width."""
    text = shorten(text, 500)
    most, pixels = len(text), inches * place.get_figure().dpi  # type: ignore[union-attr]
    place.set_text(plain(text))
    while most > 1 and place.get_window_extent().width > pixels:
        most = min(most - 1, int(0.95 * most))
        place.set_text(plain(shorten(text, most)))


def _title(figure: Figure, page: Page) -> None:
    if page.title:
        figure.suptitle(plain(shorten(page.title, int(LETTERS * WIDTH))), fontsize=11)


def _width(page: Page) -> float:
    return max(WIDTH, NARROWEST * page.columns)


def _panel(axes: Axes, panel: Panel, names: list[str], width: float) -> dict[str, Any]:
    """Draw the lines of a panel of so many inches; return them by label."""
    handles = {}
    for i, line in enumerate(panel.lines):
        if panel.ordered:
            look = _shade(i, len(panel.lines))
        else:
            look = _look(names.index(line.label) if line.label in names else i)
        handles[line.label] = _draw(axes, panel, line, look)
    _scale(axes, panel, ticks=max(3, min(6, round(1.6 * width))))
    if panel.mark is not None:
        mark = axes.axvline(panel.mark, color=MARGIN, ls="--", lw=1.2)
        handles[panel.mark_label] = mark  # words beside it would lie on some curve
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title("\n".join(plain(shorten(line, int(LETTERS * width))) for line in panel.title))
    return handles


def _draw(axes: Axes, panel: Panel, line: Line, look: Look) -> Any:  # noqa: ANN401
    points = [(row[line.x], row[line.y]) for row in line.rows]
    x, y = [point[0] for point in points], [point[1] for point in points]
    look = look if len(points) <= FEW_POINTS else {**look, "marker": ""}
    (handle,) = axes.plot(x, y, ms=4, **look)
    if panel.values:
        for point in points:
            axes.annotate(
                f"{point[1]:.3f}", point, (0, 6), textcoords="offset points", ha="center",
                fontsize=9,
            )  # fmt: skip
    return handle


def _scale(axes: Axes, panel: Panel, ticks: int) -> None:
    from matplotlib.ticker import MaxNLocator

    places = {row[line.x] for line in panel.lines for row in line.rows}
    whole = all(isinstance(x, int) for x in places)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    if panel.log_x and min(places) > 0:
        _spread_out(axes, max(places) / min(places))
    heights = {row[line.y] for line in panel.lines for row in line.rows}
    above = [y for y in heights if y > 0]
    if panel.log_y and above:
        # 0 has no logarithm, and is what a reader must not miss: it lies below the least of others.
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


def _spread_out(axes: Axes, factor: float) -> None:
    """Make the x axis logarithmic, for places of which the last is this factor of the first."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    # Powers of ten alone may leave but one of them in sight.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if factor < 1000 else (1,)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # seconds, not powers
    axes.xaxis.set_minor_formatter(NullFormatter())


def _look(i: int) -> Look:
    """Return what tells the i-th line from the others: colour, dashes and marker."""
    return {
        "color": COLOURS[i % len(COLOURS)],
        "ls": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
    }


def _shade(i: int, of: int) -> Look:
    """Return a step of a scale from dark to light, which the colour-blind see as such."""
    from matplotlib import colormaps

    return {**_look(i), "color": colormaps["viridis"](0.88 * i / max(1, of - 1))}


def _legend(axes: Axes, handles: dict[str, Any], share: float) -> None:
    """Put a legend below a panel that has a share of the page's width."""
    axes.legend(
        handles.values(), map(plain, handles), loc="upper center", frameon=False,
        bbox_to_anchor=(0.5, -0.2), ncols=_columns(list(handles), share), handlelength=3,
    )  # fmt: skip


def _columns(names: Sequence[str], share: float) -> int:
    """Return how many columns of names fit side by side."""
    letters = 105 * share / (max(len(name) for name in names) + 9)
    return max(1, min(len(names), int(letters)))


def plain(text: str) -> str:
    """Keep a name from being read as mathematics, from breaking a line and from breaking XML."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown.replace("$", r"\$").replace("_", " _", shown.startswith("_"))


def _cell(value: Any) -> Any:  # noqa: ANN401
    return f"{value:.6g}" if isinstance(value, float) else value
