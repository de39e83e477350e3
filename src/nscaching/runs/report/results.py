"""How good it is: large figures, and tables by mapping class and relation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nscaching.evaluation.ranking import METRICS
from nscaching.runs.report.markup import bar, fold, name, number, section, table
from nscaching.runs.report.ranking import Ranking

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["LONG", "breakdowns", "headline"]

FIRST = 25
"""Relations that are shown at once."""

MOST = 1000
"""Relations that are listed at all."""

HEADINGS = ("triples", "MRR", "head", "tail", "Hit@1", "Hit@3", "Hit@10", "MR")
NAMES = {"mrr": "MRR", "mr": "MR", "hits@1": "Hit@1", "hits@3": "Hit@3", "hits@10": "Hit@10"}
MEANINGS = {
    "mrr": "mean of 1 / rank",
    "mr": "mean rank",
    "hits@1": "right answer first",
    "hits@3": "among the first 3",
    "hits@10": "among the first 10",
}
LONG = {"test": "test", "valid": "validation"}
CLASSES = {
    "1-1": "one head, one tail",
    "1-N": "many tails of a head",
    "N-1": "many heads of a tail",
    "N-N": "many of both",
    "unseen": "not in training",
}


def headline(run: Run, ranking: Ranking | None) -> str:
    """Return the metrics of all held-out triples."""
    if ranking is None:
        return '<p class="hint">No triples were held out, so nothing was ranked.</p>\n'
    figures = {m: _figure(m, ranking.figures[m]) for m in METRICS}
    tiles = "".join(
        f"<div><dt>{NAMES[m]}</dt><dd>{figure}</dd><dd>{MEANINGS[m]}</dd></div>\n"
        for m, figure in figures.items()
    )
    split = LONG[ranking.split]
    return (
        f'<dl class="tiles">\n{tiles}</dl>\n'
        f'<p class="hint">Each {split} triple asks two questions, (head, relation, ?) and '
        f"(?, relation, tail); the model ranks all {len(run.graph.entities):,} entities as answers "
        "to each. MRR is 1 when the right answer always comes first. “Filtered”: other answers "
        "that are known to be true do not count against it.</p>\n"
    )


def _figure(metric: str, value: float) -> str:
    return f"{value:,.1f}" if metric == "mr" else f"{value:.3f}"


def breakdowns(run: Run, ranking: Ranking) -> str:
    """Return the tables by mapping class and by relation, the largest first."""
    found, labels, split = ranking.figures, run.graph.labels, LONG[ranking.split]
    rows = [["all", *_cells(found)]]
    for kind, values in found["by_class"].items():
        rows.append([f"{kind} <small>{CLASSES[kind]}</small>", *_cells(values)])
    by_class = table(["relations", *HEADINGS], rows)
    relations = sorted(found["by_relation"].items(), key=lambda item: -item[1]["triples"])
    listed = [
        [
            f"{name(labels.get(relation, relation), 100)} <small>{values['class']}</small>",
            *_cells(values),
        ]
        for relation, values in relations[:MOST]
    ]
    by_relation = table(["relation", *HEADINGS], listed[:FIRST])
    if more := listed[FIRST:]:
        left = len(relations) - len(listed)
        rest = f"<p>The {left:,} smallest are left out here.</p>\n" if left else ""
        by_relation += fold(
            f"{number(len(more))} more relations", table(["relation", *HEADINGS], more) + rest
        )
    hint = (
        f"Of the {number(found['triples'])} {split} triples. “Head” and “tail” are the MRR "
        "of the questions for the head and for the tail. “Many” is 1.5 or more on average in "
        "training."
    )
    return section("Results by relation", hint, f"{by_class}<h3>Each relation</h3>\n{by_relation}")


def _cells(values: dict[str, Any]) -> list[str]:
    sides = [f"{values['by_side'][side]['mrr']:.3f}" for side in ("head", "tail")]
    rest = [_figure(m, values[m]) for m in ("hits@1", "hits@3", "hits@10", "mr")]
    return [number(values["triples"]), bar(values["mrr"]), *sides, *rest]
