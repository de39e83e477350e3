"""What a run answers, as tables or JSON: rankings, classifications, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nscaching.cli.tables import HEADINGS, metric_cells, print_json, print_table, say
from nscaching.data.readers.prefixes import is_short_form
from nscaching.runs.run import Run

__all__ = ["classification", "evaluation", "export", "neighbours", "prediction"]


MOST = 12
"""How many relations or classes a table shows."""


def evaluation(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a ranking: overall, by side and mapping class where there are such, by relation."""
    if as_json:
        print_json({"run": str(run.path), **result})
        return
    rows = [["all", f"{result['triples']:,}", *metric_cells(result)]]
    for side, values in result.get("by_side", {}).items():
        rows.append([f"{side} side", "", *metric_cells(values)])
    parts, more = _largest(result["by_relation"])
    labelled = [(run.graph.labels.get(name, name), values) for name, values in parts]
    for name, values in [*result.get("by_class", {}).items(), *labelled]:
        rows.append([name, f"{values['triples']:,}", *metric_cells(values)])
    mode = "filtered" if result["filtered"] else "raw"
    what = " relations," if result.get("task") == "relations" else ""
    title = f"{run.name}:{what} {result['split']}, {mode}, {result['ties']} ties"
    print_table(["", "triples", *HEADINGS.values()], rows, title)
    _say_more(more, "relations")


def classification(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a classification of triples, entities or pairs."""
    if as_json:
        print_json({"run": str(run.path), **result})
        return
    {"entities": _entities, "linking": _linking}.get(result.get("task", ""), _triples)(run, result)


def _triples(run: Run, result: dict[str, Any]) -> None:
    parts, more = _largest(result["by_relation"])
    rows = [["all", f"{result['triples']:,}", f"{result['accuracy']:.4f}", ""]]
    rows += [
        [
            run.graph.labels.get(name, name),
            f"{v['triples']:,}",
            f"{v['accuracy']:.4f}",
            f"{v['threshold']:.3f}",
        ]
        for name, v in parts
    ]
    title = f"{run.name}: {result['split']}, negatives {result['negatives']}"
    print_table(["", "triples", "accuracy", "threshold"], rows, title)
    _say_more(more, "relations")


def _entities(run: Run, result: dict[str, Any]) -> None:
    def cells(values: dict[str, Any]) -> list[str]:
        return [f"{values[figure]:.4f}" for figure in ("accuracy", "mrr", "hits@3")]

    rows = [["all", "", f"{result['triples']:,}", *cells(result)]]
    common = result["majority"]
    rows.append([f"baseline: commonest first, {common['label']}", "", "", *cells(common)])
    parts, more = _largest(result["by_class"])
    rows += [[v["label"], f"{v['train']:,}", f"{v['triples']:,}", *cells(v)] for _, v in parts]
    relation = run.graph.labels.get(result["relation"], result["relation"])
    title = f"{run.name}: {result['split']}, {relation}, {result['classes']} classes"
    print_table(["", "in train", "triples", "accuracy", "MRR", "Hit@3"], rows, title)
    if unseen := result["triples_of_unseen_classes"]:
        say(f"{unseen} triples are of classes that training does not have: counted as wrong")
    _say_more(more, "classes")


def _linking(run: Run, result: dict[str, Any]) -> None:
    kinds = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    rows = [
        [
            name,
            *(f"{v[figure]:,}" for figure in kinds),
            f"{v['accuracy']:.4f}",
            f"{v['threshold']:.3f}",
        ]
        for name, v in (("score", result["by_score"]), ("cosine", result["by_similarity"]))
    ]
    relation = run.graph.labels.get(result["relation"], result["relation"])
    title = (
        f"{run.name}: {result['split']}, {relation}, {result['triples']:,} pairs, "
        f"negatives {result['negatives']}"
    )
    headings = ["by", *(kind.replace("_", " ") for kind in kinds), "accuracy", "threshold"]
    print_table(headings, rows, title)


def _largest(parts: dict[str, Any]) -> tuple[list[tuple[str, Any]], int]:
    """Return the parts with most triples, and how many others there are."""
    ordered = sorted(parts.items(), key=lambda item: -item[1]["triples"])
    return ordered[:MOST], max(0, len(ordered) - MOST)


def _say_more(more: int, what: str) -> None:
    if more:
        say(f"… and {more} more {what}; --json has them all")


def prediction(answer: dict[str, Any], as_json: bool) -> None:
    """Show answers, or the judgement of a whole triple."""
    if as_json:
        print_json(answer)
        return
    asked = ", ".join(answer[part] or "?" for part in ("head", "relation", "tail"))
    if "answers" not in answer:
        known = f"; known, from {answer['known']}" if answer["known"] else "; not in the data"
        if answer["threshold"] is None:
            say(f"({asked}): score {answer['score']:.3f}{known}")
            return
        verdict = "plausible" if answer["plausible"] else "implausible"
        threshold = f"threshold of its relation {answer['threshold']:.3f}"
        say(f"({asked}): {verdict}; score {answer['score']:.3f}, {threshold}{known}")
        return
    rows = []
    for a in answer["answers"]:
        rows.append([_numbered(a), f"{a['score']:.3f}", a["known"]])
    print_table([f"({asked})", "score", "known"], rows)
    if answer["known_facts_left_out"]:
        say(f"{answer['known_facts_left_out']} known facts left out; --known mark shows them")


def neighbours(answer: dict[str, Any], as_json: bool) -> None:
    """Show the nearest entities."""
    if as_json:
        print_json(answer)
        return
    by = answer["by"]
    rows = [[_numbered(near), f"{near[by]:.4f}"] for near in answer["neighbours"]]
    print_table([f"nearest to {answer['label']}", by], rows)


def export(run: Run, files: Sequence[Path], as_json: bool) -> None:
    """Say which files were written."""
    if as_json:
        sizes = {"entities": len(run.graph.entities), "relations": len(run.graph.relations)}
        print_json({"run": str(run.path), "files": [str(file) for file in files], **sizes})
        return
    say(
        f"{len(run.graph.entities):,} entities and {len(run.graph.relations):,} relations: "
        + ", ".join(str(file) for file in files)
    )


def _numbered(answer: dict[str, Any]) -> str:
    name, label = answer["name"], answer["label"]
    more = "" if label == name or is_short_form(label, name) else f" ({name})"
    return f"{answer['rank']}. {label}{more}"
