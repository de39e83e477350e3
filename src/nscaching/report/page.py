"""The page: a header with the metrics, then a section for each question that a reader has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.evaluation import Queries, breakdown, rank
from nscaching.report.cache import caches
from nscaching.report.examples import examples
from nscaching.report.markup import number, text
from nscaching.report.results import breakdowns, headline
from nscaching.report.setup import data, settings
from nscaching.report.training import curves

if TYPE_CHECKING:
    from nscaching.run import Run

__all__ = ["render"]

STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(run: Run, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the report of a run; ranks the held-out triples if training has not just done so."""
    result = run.result("test") or run.result("valid")
    title = f"{text(run.config.model, 60)} with {text(run.config.sampler, 60)} on "
    title += text(run.graph.name, 60)
    score = f" · MRR {result['mrr']:.3f}" if result else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}{score}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<p class="eyebrow">Run <bdi>{text(run.name)}</bdi></p>
<h1>{title}</h1>
<p>{_summary(run)}</p>
{headline(run)}</header>
<main>
{curves(run)}{_held_out(run, progress)}{caches(run)}{data(run)}{settings(run)}</main>
<footer>Written by nscaching.</footer>
</body>
</html>
"""


def _summary(run: Run) -> str:
    """Say which epoch was kept, how long training took and where."""
    epochs = sum("split" not in record for record in run.history)
    best = "the best by validation MRR" if run.result("valid") else "the last"
    split = "Filtered test ranking" if run.result("test") else "Filtered validation ranking"
    ranked = f"{split} of" if run.result("test") or run.result("valid") else "Parameters of"
    where = {key: run.record.get(key) for key in ("device", "kernels", "threads")}
    parts = [
        f"{ranked} epoch {number(run.best_epoch)} of {number(epochs)}, {best}",
        f"{run.train_seconds:,.1f} s of training",
        f"on {text(where['device'] or run.model.entity.device.type)}",
    ]
    if epochs < run.config.epochs:  # interrupted, or out of patience
        parts.insert(1, f"{number(run.config.epochs)} epochs were asked for")
    if where["kernels"]:
        parts[-1] += f" with {text(where['kernels'])} kernels"
    return " · ".join(parts)


def _held_out(run: Run, progress: Callable[[int, int], None] | None) -> str:
    """Return results by relation and example predictions, of test or else of validation."""
    graph = run.graph
    split = "test" if len(graph.test) else "valid"
    triples = graph.split(split)
    if not len(triples):
        return ""
    ranks = run.test_ranks if split == "test" else None
    if ranks is None:
        queries = Queries(graph, triples, device=run.model.entity.device)
        ranks = rank(run.model, queries, progress=progress)
    found = breakdown(graph, triples, ranks)
    return breakdowns(split, found, run.graph.labels) + examples(run, triples, ranks)
