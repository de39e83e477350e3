"""Ways from scores to probabilities, compared on the test triples of trained runs.

python benchmarks/calibration.py RUN … [--made] [--plot FILE] [--answers]

Each way is fitted on the validation triples and their negatives. --made leaves the negatives of the
data aside and makes others by seed. --plot draws the reliability of the package's way. --answers
tells instead how far the probabilities of predicted answers can be trusted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from nscaching import Run
from nscaching.data.graph import Labelled
from nscaching.evaluation.calibrate import NO_CURVE, fit_calibration, fit_curve
from nscaching.evaluation.calibration import Calibration, Sigmoid
from nscaching.evaluation.classify import Truth, score_triples
from nscaching.evaluation.labelled import labelled_triples
from nscaching.evaluation.ranking import rows_by
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.reliability import calibration_error, reliability


def main() -> None:
    """Print a Markdown table, and draw a plot if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--answers", action="store_true")
    asked = parser.parse_args()
    if asked.answers:
        print_answers(asked.runs)
        return
    print("| run | triples, valid / test | way | error, 15 bins | 10 bins | Brier | log loss |")
    print("|---|---|---|---:|---:|---:|---:|")
    drawn: dict[str, tuple[Floats, Truth]] = {}
    for path in asked.runs:
        run = Run.load(path, "cpu")
        if asked.made:
            run.graph.labelled = {}
        valid, test = (labelled_triples(run.graph, split) for split in ("valid", "test"))
        scores = {id(part): score_triples(run.model, part.triples) for part in (valid, test)}
        size = f"{len(valid.truth):,} / {len(test.truth):,}"
        for name, chances in ways(valid, scores[id(valid)], test, scores[id(test)]).items():
            print(f"| {path.name} | {size} | {name} | {figures(chances, test.truth)} |", flush=True)
            drawn[path.name] = chances, test.truth  # the last is the package's way
    if asked.plot:
        draw(drawn, asked.plot)


def print_answers(paths: list[Path]) -> None:
    print("| run | queries | error, 15 bins | Brier | first answer: probability | right |")
    print("|---|---:|---:|---:|---:|---:|")
    for path in paths:
        run = Run.load(path, "cpu")
        found = run.evaluate(task="calibration")["answers"]
        best, error = found["best"], found["expected_calibration_error"]
        figures = f"{error:.4f} | {found['brier']:.4f} | {best['probability']:.3f}"
        print(
            f"| {path.name} | {found['queries']:,} | {figures} | {best['share']:.3f} |", flush=True
        )


def ways(valid: Labelled, scores: Floats, test: Labelled, asked: Floats) -> dict[str, Floats]:
    """Return the probabilities of the test triples by each way."""
    ours = fit_calibration(scores, valid.truth, valid.triples[:, 1], valid.origin)
    relations = test.triples[:, 1]
    one = Calibration(ours.everywhere, {}, NO_CURVE, ours.prior, ours.triples, ours.negatives)
    several = Calibration(
        ours.everywhere, ours.by_relation, NO_CURVE, ours.prior, ours.triples, ours.negatives
    )
    level = isotonic(scores, valid.truth).probabilities(asked, relations)
    levels, of_test = level.copy(), dict(rows_by(relations))
    for relation, rows in rows_by(valid.triples[:, 1]):
        if relation in ours.by_relation and relation in of_test:
            here = of_test[relation]
            fitted = isotonic(scores[rows], valid.truth[rows])
            levels[here] = fitted.probabilities(asked[here], relations[here])
    return {
        "one sigmoid": one.probabilities(asked, relations),
        "one isotonic curve": level,
        "a sigmoid per relation": several.probabilities(asked, relations),
        "an isotonic curve per relation": levels,
        "a sigmoid per relation, one curve": ours.probabilities(asked, relations),
    }


def isotonic(scores: Floats, truth: Truth) -> Calibration:
    """Return the isotonic curve of some scores, whose range must not be beyond log-odds."""
    low, span = scores.min(), max(float(np.ptp(scores)), 1e-9)
    line = Sigmoid(20 / span, -10 - 20 * low / span)
    odds = line.slope * scores + line.offset
    return Calibration(line, {}, fit_curve(odds, truth), 0.5, len(truth), "")


def figures(chances: Floats, truth: Truth) -> str:
    equal = np.ones(len(truth))
    errors = [calibration_error(chances, truth, equal, bins) for bins in (15, 10)]
    brier = ((chances - truth) ** 2).mean()
    loss = -np.log(np.where(truth, chances, 1 - chances)).mean()
    return " | ".join(f"{value:.4f}" for value in (*errors, brier, loss))


def draw(drawn: dict[str, tuple[Floats, Truth]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(drawn), 3.4), dpi=150, layout="constrained")
    for axes, (name, (chances, truth)) in zip(
        figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True
    ):
        found = reliability(chances, truth, np.ones(len(truth)))
        axes.plot([0, 1], [0, 1], color="#999999", lw=1)
        points = [[one[key] for one in found] for key in ("probability", "share")]
        axes.plot(*points, "o-", ms=3.5, color="#0072B2")
        edges = [one["from"] for one in found]
        heights = [one["triples"] / len(truth) for one in found]
        axes.bar(edges, heights, 1 / 15, align="edge", color="#0072B2", alpha=0.15)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="probability", title=name)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share of true test triples")
    figure.savefig(path)


if __name__ == "__main__":
    main()
