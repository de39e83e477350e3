"""Line charts, most of them against epochs: where all parts lie. The template draws SVG."""

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from nscaching.runs.folder import Record
from nscaching.runs.report.markup import number

Point = tuple[float, float]

MOST_FIGURES = 12  # a sampler of the user's may record any number

WIDTH, HEIGHT = 480, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 26
MOST_POINTS = 300
MOST_HOVERS = 60
TOO_LARGE = 1e30  # of a figure: the range of an axis must not overflow


class Series(NamedTuple):
    """One line of a chart: points (epoch, value) by epoch."""

    label: str
    points: Sequence[Point]
    mark: float | None = None  # epoch whose point is drawn


def panels(
    history: Sequence[Record], best_epoch: int, left_out: Collection[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """Return the charts of a run by figure: loss and MRR first, then all others."""
    epochs = [record for record in history if "split" not in record]
    recorded = dict.fromkeys(key for record in epochs for key in record)
    left_out = {"epoch", "seconds", *left_out}
    keys = [key for key in recorded if key not in left_out][:MOST_FIGURES]
    last = max((r["epoch"] for r in epochs if abs(r["epoch"]) < TOO_LARGE), default=1)
    drawn = [(key, chart([Series(key, _points(epochs, key))], last)) for key in keys]
    sampled = next((r["candidates"] for r in history if r.get("candidates")), 0)
    valid = f"validation, {sampled:,} sampled candidates" if sampled else "validation"
    rankings = [
        Series(label, _points([r for r in history if r.get("split") == split], "mrr"), mark)
        for split, label, mark in (("valid", valid, best_epoch), ("test", "test", None))
    ]
    drawn.insert(1, ("MRR", chart(rankings, last)))
    return [(key, panel) for key, panel in drawn if panel]


def _points(records: Sequence[Record], key: str) -> list[Point]:
    """Return (epoch, figure) of the records that have such a number, an epoch once."""
    found = {
        float(record["epoch"]): float(record[key])
        for record in records
        if isinstance(record.get(key), int | float)
    }
    return sorted(found.items())


def chart(series: Sequence[Series], last: float, shares: bool = False) -> dict[str, Any]:
    """Return the places of all parts of a chart, empty if there is nothing to draw.

    The value is that of the first line at its mark, or else its last. Across are epochs, up to
    ``last`` or further. A chart of ``shares`` has probabilities across and shares up, both to 1,
    and the diagonal, where they are equal.
    """
    usable = [
        Series(label, [point for point in points if all(abs(x) < TOO_LARGE for x in point)], mark)
        for label, points, mark in series
    ]
    drawn = [one for one in usable if one.points]
    if not drawn:
        return {}
    xs, ys = zip(*(point for one in drawn for point in one.points), strict=True)
    levels = ticks(min(0.0, *ys), max(float(shares), *ys))
    epochs = ticks(0, max(1.0, last, *xs), 6, not shares)

    def place(point: Point) -> Point:
        x, y = point[0] / epochs[-1], (point[1] - levels[0]) / (levels[-1] - levels[0])
        across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + across * x, HEIGHT - BOTTOM - up * y

    said = _short if shares else number
    _, points, mark = drawn[0]
    axis = max(levels[0], 0)
    return {
        "across": "probability" if shares else "epoch",
        "diagonal": [place((0, 0)), place((1, 1))] if shares else [],
        "labels": [one.label for one in drawn],
        "value": dict(points).get(mark if mark is not None else -1, points[-1][1]),
        "size": (WIDTH, HEIGHT),
        "inner": (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM),  # left, right, top, bottom
        "levels": [(place((0, y))[1], "axis" if y == axis else "grid", _short(y)) for y in levels],
        "epochs": [
            (place((x, 0))[0], "end" if x == epochs[-1] else "middle", said(x)) for x in epochs
        ],
        "lines": [[place(point) for point in thin(one.points)] for one in drawn],
        "marks": [[place(p) for p in one.points if p[0] == one.mark] for one in drawn],
        "hovers": _hovers(drawn, place),
    }


def ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Return at most so many round numbers whose range holds low and high."""
    span = high - low if high - low > 1 / TOO_LARGE else 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    for step in (m * p for p in (power, 10 * power) for m in (1, 2, 2.5, 5)):
        if whole and step != max(1, int(step)):
            continue
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most:
            return [i * step for i in range(first, max(last, first + 1) + 1)]
    return [low, low + span]


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Keep about so many points: the lowest and the highest of each stretch, the first, the last.

    A spike of one epoch stays visible.
    """
    if len(points) <= most:
        return list(points)
    stretches, kept = most // 2 - 1, {0, len(points) - 1}
    for i in range(stretches):
        stretch = range(i * len(points) // stretches, (i + 1) * len(points) // stretches)
        kept |= {min(stretch, key=lambda j: points[j][1]), max(stretch, key=lambda j: points[j][1])}
    return [points[i] for i in sorted(kept)]


def _hovers(drawn: Sequence[Series], place: Callable[[Point], Point]) -> list[dict[str, Any]]:
    at: dict[float, list[tuple[int, str, Point]]] = {}  # epoch → (colour, label, point)
    for colour, one in enumerate(drawn, 1):
        for point in one.points:
            at.setdefault(point[0], []).append((colour, one.label, point))
    epochs = sorted(at)
    epochs = epochs[:: -math.ceil(len(epochs) / MOST_HOVERS)][::-1]  # with the last epoch
    places = [place((epoch, 0))[0] for epoch in epochs]
    between = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    edges = [places[0] - 4, *between, places[-1] + 4]
    return [
        {
            "epoch": epoch,
            "left": left,
            "right": right,
            "values": [(label, point[1]) for _, label, point in at[epoch]],
            "dots": [(colour, place(point)) for colour, _, point in at[epoch]],
        }
        for epoch, (left, right) in zip(epochs, itertools.pairwise(edges), strict=True)
    ]


def _short(value: float) -> str:
    shown = f"{value / 1e3:g}k" if 1e4 <= abs(value) < 1e7 else f"{value:.6g}"
    return shown.replace("-", "−")
