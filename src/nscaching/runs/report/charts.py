"""Line charts against epochs as SVG, written by hand: no script, colours from the style sheet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nscaching.runs.report.markup import number, text

__all__ = ["TOO_LARGE", "Point", "Series", "chart", "thin", "ticks"]

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

    So a spike of one epoch is still seen.
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


def chart(title: str, series: Sequence[Series], last_epoch: float) -> str:
    """Return a chart as SVG, empty where there is nothing to draw."""
    drawn = [(one, points) for one in series if (points := one.usable())]
    if not drawn:
        return ""
    values = [y for _, points in drawn for _, y in points]
    levels = ticks(min(0.0, *values), max(0.0, *values))
    epochs = ticks(0, max(1.0, last_epoch, *(x for _, points in drawn for x, _ in points)), 6, True)
    frame = _Frame(epochs[-1], levels[0], levels[-1])
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}">',
        *(frame.level(y) for y in levels),
        *(frame.epoch(x) for x in epochs),
        *(frame.line(points, i) for i, (_, points) in enumerate(drawn, 1)),
        *(frame.mark(one.mark, points, i) for i, (one, points) in enumerate(drawn, 1)),
        frame.hovers(drawn),
        "</svg>\n",
    ]
    return "\n".join(part for part in parts if part)


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

    def level(self, value: float) -> str:
        y, kind = self.y(value), "axis" if value == max(self.low, 0) else "grid"
        line = f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        short = f"{value / 1e3:g}k" if 1e4 <= abs(value) < 1e7 else f"{value:.6g}"
        label = short.replace("-", "−")
        return f'{line}<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'

    def epoch(self, epoch: float) -> str:
        anchor = "end" if epoch == self.last else "middle"
        place = f'x="{self.x(epoch):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}"'
        return f"<text {place}>{number(epoch)}</text>"

    def line(self, points: Sequence[Point], colour: int) -> str:
        if len(points) == 1:
            return self.dot(points[0], colour, 5.5, "ring")
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in thin(points))
        return f'<polyline class="line c{colour}" points="{places}"/>'

    def dot(self, point: Point, colour: int, radius: float, kind: str = "dot") -> str:
        x, y = self.x(point[0]), self.y(point[1])
        return f'<circle class="{kind} c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'

    def mark(self, epoch: float | None, points: Sequence[Point], colour: int) -> str:
        return "".join(self.dot(point, colour, 3.5) for point in points if point[0] == epoch)

    def hovers(self, drawn: Sequence[tuple[Series, Sequence[Point]]]) -> str:
        """Return stripes that say what stands at their epoch when pointed at."""
        at: dict[float, list[tuple[str, Point, int]]] = {}
        for colour, (one, points) in enumerate(drawn, 1):
            for point in points:
                at.setdefault(point[0], []).append((one.label, point, colour))
        epochs = sorted(at)
        epochs = epochs[:: -math.ceil(len(epochs) / MOST_HOVERS)][::-1]  # the last among them
        places = [self.x(epoch) for epoch in epochs]
        between = [(a + b) / 2 for a, b in itertools.pairwise(places)]
        edges = [places[0] - 4, *between, places[-1] + 4]
        upright, stripes = f'y="{TOP}" height="{HEIGHT - TOP - BOTTOM}"', []
        for epoch, (left, right) in zip(epochs, itertools.pairwise(edges), strict=True):
            said = ", ".join(f"{text(label)} {number(p[1])}" for label, p, _ in at[epoch])
            dots = "".join(self.dot(point, colour, 3) for _, point, colour in at[epoch])
            stripe = f'<rect x="{left:.1f}" width="{right - left:.1f}" {upright}/>'
            title = f"<title>epoch {number(epoch)}: {said}</title>"
            stripes.append(f'<g class="hover">{title}{stripe}{dots}</g>')
        return "\n".join(stripes)
