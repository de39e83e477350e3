"""Results on standard output: tables for people, JSON for programs. Notes go to standard error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching.cli.show_answers import classification, evaluation, export, neighbours, prediction
from nscaching.cli.tables import HEADINGS, metric_cells, note, print_json, print_table, say
from nscaching.cli.work import distinct_names
from nscaching.data import datasets as known_datasets
from nscaching.data.graph import KnowledgeGraph
from nscaching.evaluation.ranking import METRICS
from nscaching.runs.layout import REPORT
from nscaching.runs.run import Run
from nscaching.training.memory import Statement, readable

__all__ = [
    "classification",
    "comparison",
    "datasets",
    "demonstration",
    "evaluation",
    "export",
    "graph",
    "memory",
    "neighbours",
    "prediction",
    "run",
]


def graph(graph: KnowledgeGraph, notes: Sequence[str] = ()) -> None:
    """Say what was loaded, then what loading noted, then other notes."""
    sizes = " / ".join(f"{len(graph.split(split)):,}" for split in ("train", "valid", "test"))
    note(
        f"{graph.name}: {len(graph.entities):,} entities, {len(graph.relations):,} relations, "
        f"{sizes} triples (train / valid / test)"
    )
    for each in (*graph.notes, *notes):
        note(f"note: {each}")


def memory(found: Statement, as_json: bool) -> None:
    """Show what a training run would need, and what is available."""
    if as_json:
        print_json(found.to_dict())
        return
    for place in found.places:
        mine = [item for item in found.items if item.place == place]
        rows = [[item.what, readable(item.bytes)] for item in mine]
        available = found.available[place]
        rows.append(["peak", readable(found.peak(place))])
        rows.append(["available", "unknown" if available is None else readable(available)])
        print_table([place, "needs"], rows)
    say("the peak is the sum of all items; of the transient ones only the largest counts")


def datasets(as_json: bool) -> None:
    """List the known data sets."""
    from nscaching.data.load import WORLD

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
        print_json(rows)
        return
    columns = ("entities", "relations", "train", "valid", "test")
    print_table(
        ["name", *columns, "here"],
        [
            [name, *(f"{row[c]:,}" for c in columns), "yes" if row["here"] else "on first use"]
            for name, row in rows.items()
        ],
    )
    say(f"Data sets are kept in {known_datasets.cache_home()} (NSCACHING_HOME changes that).")


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
        print_json(figures)
        return
    rows = [[s, *metric_cells(figures[s])] for s in ("valid", "test") if figures[s]]
    title = f"{run.config.model} with {run.config.sampler} on {run.graph.name}"
    if rows:
        print_table(["split", *HEADINGS.values()], rows, title)
    best = "was best" if figures["valid"] else "was kept"
    say(
        f"epoch {run.best_epoch} of {figures['epochs']} {best}; "
        f"{run.train_seconds:.1f} s of training",
        f"run folder: {run.path}",
    )
    if run.path is not None and (run.path / REPORT).is_file():
        say(f"report: {run.path / REPORT}")


def comparison(runs: Sequence[Run], plot: Path, as_json: bool) -> None:
    """Show runs side by side."""
    compared = _compared(runs, plot)
    if as_json:
        print_json(compared)
        return
    rows = []
    for name, run, figures in zip(distinct_names(runs), runs, compared["runs"], strict=True):
        result = figures["test"] or figures["valid"]
        numbers = metric_cells(result) if result else ["–"] * len(METRICS)
        split = result["split"] if result else "–"
        rows.append([name, split, *numbers, f"{run.train_seconds:.1f}"])
    print_table(["run", "split", *HEADINGS.values(), "seconds"], rows)
    say(f"plot: {plot}")


def demonstration(
    runs: Sequence[Run], plot: Path, answers: Sequence[dict[str, Any]], as_json: bool
) -> None:
    """Show runs side by side and some answers."""
    if as_json:
        print_json({**_compared(runs, plot), "answers": answers})
        return
    comparison(runs, plot, as_json=False)
    for answer in answers:
        say("")
        prediction(answer, as_json=False)
    say("", f"run folders: {', '.join(str(run.path) for run in runs)}")


def _compared(runs: Sequence[Run], plot: Path) -> dict[str, Any]:
    return {"runs": [summary(run) for run in runs], "plot": str(plot)}
