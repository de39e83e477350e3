"""Results on standard output: tables for people, JSON for programs. Notes go to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nscaching import datasets as known_datasets
from nscaching.errors import UserError
from nscaching.evaluation import METRICS
from nscaching.graph import KnowledgeGraph
from nscaching.run import Run
from nscaching.work import distinct_names

__all__ = [
    "classification",
    "comparison",
    "datasets",
    "demonstration",
    "evaluation",
    "graph",
    "prediction",
    "run",
]

# In a file or a pipe, no line of a table is broken.
FILE_WIDTH = 1 << 16

HEADINGS = {"mrr": "MRR", "mr": "MR", "hits@1": "Hit@1", "hits@3": "Hit@3", "hits@10": "Hit@10"}


def _json(value: object) -> None:
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = json.dumps(value, indent=2, ensure_ascii=plain, allow_nan=False)
    except ValueError:
        raise UserError("a figure is not a number: the run is damaged or diverged") from None
    sys.stdout.write(text + "\n")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table; all but the first column are figures. Names are shown as they are."""
    table = Table(title=Text(title) if title else None, title_justify="left", box=None)
    for i, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if i == 0 else "right"
        table.add_column(Text(heading, style="bold"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _say(table)


def _say(what: Table | str) -> None:
    console = Console(highlight=False, soft_wrap=isinstance(what, str))
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(Text(what) if isinstance(what, str) else what)


def _figures(values: dict[str, Any]) -> list[str]:
    return [f"{values[m]:,.1f}" if m == "mr" else f"{values[m]:.4f}" for m in METRICS]


def graph(graph: KnowledgeGraph) -> None:
    """Say what was loaded, and what about it a reader should hear."""
    console = Console(stderr=True, highlight=False)
    sizes = " / ".join(f"{len(graph.split(split)):,}" for split in ("train", "valid", "test"))
    console.print(
        Text(
            f"{graph.name}: {len(graph.entities):,} entities, {len(graph.relations):,} relations, "
            f"{sizes} triples (train / valid / test)"
        ),
        soft_wrap=True,
    )
    for note in graph.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


def datasets(as_json: bool) -> None:
    """List the known data sets."""
    from nscaching.loading import WORLD

    world = KnowledgeGraph.load(WORLD)
    rows: dict[str, dict[str, Any]] = {
        "world": {
            "title": "countries, embedded",
            "entities": len(world.entities),
            "relations": len(world.relations),
            "train": len(world.train),
            "valid": len(world.valid),
            "test": len(world.test),
            "here": True,
        }
    }
    for name, known in known_datasets.KNOWN.items():
        fields = ("title", "entities", "relations", "train", "valid", "test")
        rows[name] = {field: getattr(known, field) for field in fields}
        rows[name]["here"] = known_datasets.is_cached(name)
    if as_json:
        _json(rows)
        return
    columns = ("entities", "relations", "train", "valid", "test")
    _table(
        ["name", *columns, "here"],
        [
            [name, *(f"{row[c]:,}" for c in columns), "yes" if row["here"] else "on first use"]
            for name, row in rows.items()
        ],
    )
    _say(f"Data sets are kept in {known_datasets.cache_home()} (NSCACHING_HOME changes that).")


def summary(run: Run) -> dict[str, Any]:
    """Return the figures of a run that training recorded."""
    return {
        "run": str(run.path or run.name),
        "data": run.graph.name,
        "model": run.config.model,
        "sampler": run.config.sampler,
        "epochs": sum("loss" in record for record in run.history),
        "best_epoch": run.best_epoch,
        "train_seconds": run.train_seconds,
        "valid": run.result("valid"),
        "test": run.result("test"),
    }


def run(run: Run, as_json: bool) -> None:
    """Show the results of a training."""
    figures = summary(run)
    if as_json:
        _json(figures)
        return
    rows = [[s, *_figures(figures[s])] for s in ("valid", "test") if figures[s]]
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    _table(["split", *HEADINGS.values()], rows, title)
    best = "was best" if figures["valid"] else "was kept"
    _say(
        f"epoch {run.best_epoch} of {figures['epochs']} {best}; "
        f"{run.train_seconds:.1f} s of training\n"
        f"run folder: {run.path}"
    )


def evaluation(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a ranking: overall, by side, by mapping class and by relation."""
    if as_json:
        _json({"run": str(run.path), **result})
        return
    rows = [["all", f"{result['triples']:,}", *_figures(result)]]
    rows += [[f"{side} side", "", *_figures(v)] for side, v in result["by_side"].items()]
    rows += [[name, f"{v['triples']:,}", *_figures(v)] for name, v in result["by_class"].items()]
    relations = sorted(result["by_relation"].items(), key=lambda item: -item[1]["triples"])
    rows += [[name, f"{v['triples']:,}", *_figures(v)] for name, v in relations[:12]]
    mode = "filtered" if result["filtered"] else "raw"
    title = f"{run.name}: {result['split']}, {mode}, {result['ties']} ties"
    _table(["", "triples", *HEADINGS.values()], rows, title)
    if len(relations) > 12:
        _say(f"… and {len(relations) - 12} more relations; --json has them all")


def classification(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a classification."""
    if as_json:
        _json({"run": str(run.path), **result})
        return
    relations = sorted(result["by_relation"].items(), key=lambda item: -item[1]["triples"])
    rows = [["all", f"{result['triples']:,}", f"{result['accuracy']:.4f}", ""]]
    rows += [
        [name, f"{v['triples']:,}", f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"]
        for name, v in relations[:12]
    ]
    title = f"{run.name}: {result['split']}, negatives {result['negatives']}"
    _table(["", "triples", "accuracy", "threshold"], rows, title)
    if len(relations) > 12:
        _say(f"… and {len(relations) - 12} more relations; --json has them all")


def prediction(answer: dict[str, Any], as_json: bool) -> None:
    """Show answers, or the judgement of a whole triple."""
    if as_json:
        _json(answer)
        return
    asked = ", ".join(answer[part] or "?" for part in ("head", "relation", "tail"))
    if "answers" not in answer:
        known = f"; known, from {answer['known']}" if answer["known"] else "; not in the data"
        if answer["threshold"] is None:
            _say(f"({asked}): score {answer['score']:.3f}{known}")
            return
        verdict = "plausible" if answer["plausible"] else "implausible"
        threshold = f"threshold of its relation {answer['threshold']:.3f}"
        _say(f"({asked}): {verdict}; score {answer['score']:.3f}, {threshold}{known}")
        return
    rows = []
    for a in answer["answers"]:
        name = a["label"] if a["label"] == a["name"] else f"{a['label']} ({a['name']})"
        rows.append([f"{a['rank']}. {name}", f"{a['score']:.3f}", a["known"]])
    _table([f"({asked})", "score", "known"], rows)
    if answer["known_facts_left_out"]:
        _say(f"{answer['known_facts_left_out']} known facts left out; --known mark shows them")


def comparison(runs: Sequence[Run], plot: Path, as_json: bool) -> None:
    """Show runs side by side."""
    compared = _compared(runs, plot)
    if as_json:
        _json(compared)
        return
    rows = []
    for name, run, figures in zip(distinct_names(runs), runs, compared["runs"], strict=True):
        result = figures["test"] or figures["valid"]
        numbers = _figures(result) if result else ["–"] * len(METRICS)
        split = result["split"] if result else "–"
        rows.append([name, split, *numbers, f"{run.train_seconds:.1f}"])
    _table(["run", "split", *HEADINGS.values(), "seconds"], rows)
    _say(f"plot: {plot}")


def demonstration(
    runs: Sequence[Run], plot: Path, answers: Sequence[dict[str, Any]], as_json: bool
) -> None:
    """Show runs side by side and some answers."""
    if as_json:
        _json({**_compared(runs, plot), "answers": answers})
        return
    comparison(runs, plot, as_json=False)
    for answer in answers:
        _say("")
        prediction(answer, as_json=False)
    _say(f"\nrun folders: {', '.join(str(run.path) for run in runs)}")


def _compared(runs: Sequence[Run], plot: Path) -> dict[str, Any]:
    return {"runs": [summary(run) for run in runs], "plot": str(plot)}
