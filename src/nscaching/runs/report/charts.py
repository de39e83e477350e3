"""Line charts against epochs: where everything lies. The template draws them as SVG."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nscaching.runs.report.markup import number

Point = tuple[float, float]

WIDTH, HEIGHT = 480, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 26
MOST_POINTS = 300
MOST_HOVERS = 60
TOO_LARGE = 1e30  # of a figure: the range of an axis must not overflow


@dataclass(frozen=True)
class Series:
    """One line of a chart: points (epoch, value) by epoch."""

    label: str
    points: Sequence[Point]
    mark: float | None = None
    """Epoch whose point is drawn."""

    def usable(self) -> list[Point]:
        """Return the points that can be drawn."""
        return [(x, y) for x, y in self.points if abs(x) < TOO_LARGE and abs(y) < TOO_LARGE]

    def value(self) -> float:
        """Return the value at the mark, or the last."""
        points = self.usable()
        return dict(points).get(self.mark if self.mark is not None else -1, points[-1][1])


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


def chart(title: str, series: Sequence[Series], last_epoch: float) -> dict[str, Any]:
    """Return the places of everything in a chart, empty if there is nothing to draw."""
    drawn = [(one, points) for one in series if (points := one.usable())]
    if not drawn:
        return {}
    values = [y for _, points in drawn for _, y in points]
    levels = ticks(min(0.0, *values), max(0.0, *values))
    epochs = ticks(0, max(1.0, last_epoch, *(x for _, points in drawn for x, _ in points)), 6, True)
    frame = _Frame(epochs[-1], levels[0], levels[-1])
    axis = max(levels[0], 0)
    return {
        "title": title,
        "size": (WIDTH, HEIGHT),
        "inner": (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM),  # left, right, top, bottom
        "levels": [(frame.y(y), "axis" if y == axis else "grid", _short(y)) for y in levels],
        "epochs": [(frame.x(x), "end" if x == epochs[-1] else "middle", number(x)) for x in epochs],
        "lines": [[frame.place(point) for point in thin(points)] for _, points in drawn],
        "marks": [
            [frame.place(point) for point in points if point[0] == one.mark]
            for one, points in drawn
        ],
        "hovers": frame.hovers(drawn),
    }


def _short(value: float) -> str:
    shown = f"{value / 1e3:g}k" if 1e4 <= abs(value) < 1e7 else f"{value:.6g}"
    return shown.replace("-", "−")


@dataclass(frozen=True)
class _Frame:
    """Where epochs 0 to ``last`` and values ``low`` to ``high`` lie in the picture."""

    last: float
    low: float
    high: float

    def x(self, epoch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * epoch / self.last

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def place(self, point: Point) -> Point:
        return self.x(point[0]), self.y(point[1])

    def hovers(self, drawn: Sequence[tuple[Series, Sequence[Point]]]) -> list[dict[str, Any]]:
        """Return stripes that show the values of their epoch when pointed at."""
        at: dict[float, list[tuple[int, str, Point]]] = {}  # epoch → (colour, label, point)
        for colour, (one, points) in enumerate(drawn, 1):
            for point in points:
                at.setdefault(point[0], []).append((colour, one.label, point))
        epochs = sorted(at)
        epochs = epochs[:: -math.ceil(len(epochs) / MOST_HOVERS)][::-1]  # with the last epoch
        places = [self.x(epoch) for epoch in epochs]
        between = [(a + b) / 2 for a, b in itertools.pairwise(places)]
        edges = [places[0] - 4, *between, places[-1] + 4]
        return [
            {
                "epoch": epoch,
                "left": left,
                "right": right,
                "values": [(label, point[1]) for _, label, point in at[epoch]],
                "dots": [(colour, self.place(point)) for colour, _, point in at[epoch]],
            }
            for epoch, (left, right) in zip(epochs, itertools.pairwise(edges), strict=True)
        ]
