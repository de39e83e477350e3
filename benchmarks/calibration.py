"""Ways from scores to probabilities, compared on the test triples of trained runs.

python benchmarks/calibration.py RUN … [--made] [--plot FILE] [--best 2000]

Each way is fitted on the validation triples and their negatives. --made leaves the negatives of the
data aside and makes others by seed. --plot draws the reliability of the package's way. --best
compares, for so many test triples, the probability of the best answer to (h, r, ?) with how often
that is the right one; known answers are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from nscaching import Run
from nscaching.data.graph import Labelled
from nscaching.data.index import Side
from nscaching.evaluation.calibrate import NO_CURVE, fit_calibration, fit_curve
from nscaching.evaluation.calibration import Calibration, Floats, Sigmoid
from nscaching.evaluation.classify import Truth, score_triples
from nscaching.evaluation.labelled import labelled_triples
from nscaching.evaluation.ranking import rows_by
from nscaching.evaluation.reliability import calibration_error, reliability

PRIORS = (0.5, 0.1, 0.01, 0.001)


def main() -> None:
    """Print a Markdown table, and draw a plot if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--best", type=int, default=0)
    asked = parser.parse_args()
    if asked.best:
        print_best(asked.runs, asked.best)
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


def print_best(paths: list[Path], count: int) -> None:
    print(f"| run | best answer is right | {' | '.join(f'prior {p}' for p in PRIORS)} |")
    print(f"|---|---:|{'---:|' * len(PRIORS)}")
    for path in paths:
        run = Run.load(path, "cpu")
        graph, fitted = run.graph, run.calibrated()
        assert fitted is not None
        rows = np.random.default_rng(0).permutation(len(graph.test))[:count]
        triples = graph.test[rows]
        best, right = [], 0
        for h, r, t in triples.tolist():
            with torch.no_grad():
                scores = run.model.score_all(Side.TAIL, torch.tensor([h]), torch.tensor([r]))[0]
            _, known = graph.filter_index[Side.TAIL].known(np.array([h]), np.array([r]))
            own = scores[t].clone()
            scores[known.tolist()] = -torch.inf
            scores[t] = own
            best.append(float(scores.max()))
            right += int(scores.argmax()) == t
        found = [
            fitted.probabilities(np.array(best), triples[:, 1], prior).mean() for prior in PRIORS
        ]
        means = " | ".join(f"{mean:.3f}" for mean in found)
        print(f"| {path.name} | {right / len(triples):.3f} | {means} |", flush=True)


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
