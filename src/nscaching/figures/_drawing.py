"""How pages look: one style for all figures, and files that come out the same every time."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.figures._pages import Line, Page, Panel
from nscaching.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plain", "shorten", "write"]

WIDTH = 9.0  # inches: shown 900 pixels wide, text of 10 points is 14 pixels high
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<P*"
FEW_POINTS = 15  # points are marked where there are not more
MARGIN = "#B00020"
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
        height = page.panel_height * rows + 0.5
        figure = Figure(figsize=(WIDTH, height), dpi=150, layout="constrained")
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
    for frame, panel in zip(axes, page.panels, strict=False):
        drawn = _panel(frame, panel, names)
        if panel.legend:
            _legend(frame, drawn, 0.5 if page.columns > 1 else 1.0)
        else:
            handles |= {name: handle for name, handle in drawn.items() if name not in handles}
    for frame in axes[len(page.panels) :]:
        frame.remove()
    if page.title:
        figure.suptitle(plain(page.title), fontsize=11)
    if len(handles) > 1:
        figure.legend(
            handles.values(), map(plain, handles), loc="outside lower center", frameon=False,
            ncols=_columns(list(handles), 1.0), handlelength=3,
        )  # fmt: skip


def _panel(axes: Axes, panel: Panel, names: list[str]) -> dict[str, Any]:
    """Draw the lines of a panel; return them by label."""
    handles = {}
    for i, line in enumerate(panel.lines):
        if panel.ordered:
            look = _shade(i, len(panel.lines))
        else:
            look = _look(names.index(line.label) if line.label in names else i)
        handles[line.label] = _draw(axes, panel, line, look)
    _scale(axes, panel)
    if panel.mark is not None:
        mark = axes.axvline(panel.mark, color=MARGIN, ls="--", lw=1.2)
        handles[panel.mark_label] = mark  # words beside it would lie on some curve
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title("\n".join(map(plain, panel.title)))
    return handles


def _draw(axes: Axes, panel: Panel, line: Line, look: Look) -> Any:  # noqa: ANN401
    points = [(row[line.x], row[line.y]) for row in line.rows]
    points = [
        (x, y) for x, y in points if (x > 0 or not panel.log_x) and (y > 0 or not panel.log_y)
    ]
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


def _scale(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

    places = {row[line.x] for line in panel.lines for row in line.rows}
    whole = all(isinstance(x, int) for x in places)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    # Without a point a logarithmic axis has nothing to begin at.
    if any(len(line.get_path()) for line in axes.lines):
        if panel.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # seconds, not powers
            axes.xaxis.set_minor_formatter(NullFormatter())
        if panel.log_y:
            axes.set_yscale("log")
    if whole and not panel.log_x:
        axes.set_xlim(left=0)
    if panel.from_zero:  # with room for a line at 0
        axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])
    if panel.values:
        axes.set_xlim(right=1.1 * max(places))
        axes.set_xticks(sorted(places))
        axes.set_ylim(top=axes.get_ylim()[1] * 1.12)


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


def shorten(text: str, most: int) -> str:
    """Leave out the middle of a text that is too long."""
    return text if len(text) <= most else f"{text[: (most - 1) // 2]}…{text[-(most // 2) :]}"


def _cell(value: Any) -> Any:  # noqa: ANN401
    return f"{value:.6g}" if isinstance(value, float) else value
