"""What a run answers, as tables or JSON: rankings, classifications, predictions."""

from __future__ import annotations

from typing import Any

from nscaching.run import Run
from nscaching.tables import HEADINGS, metric_cells, print_json, print_table, say

__all__ = ["classification", "evaluation", "prediction"]


def evaluation(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a ranking: overall, by side, by mapping class and by relation."""
    if as_json:
        print_json({"run": str(run.path), **result})
        return
    rows = [["all", f"{result['triples']:,}", *metric_cells(result)]]
    rows += [[f"{side} side", "", *metric_cells(v)] for side, v in result["by_side"].items()]
    rows += [
        [name, f"{v['triples']:,}", *metric_cells(v)] for name, v in result["by_class"].items()
    ]
    relations = sorted(result["by_relation"].items(), key=lambda item: -item[1]["triples"])
    rows += [[name, f"{v['triples']:,}", *metric_cells(v)] for name, v in relations[:12]]
    mode = "filtered" if result["filtered"] else "raw"
    title = f"{run.name}: {result['split']}, {mode}, {result['ties']} ties"
    print_table(["", "triples", *HEADINGS.values()], rows, title)
    if len(relations) > 12:
        say(f"… and {len(relations) - 12} more relations; --json has them all")


def classification(run: Run, result: dict[str, Any], as_json: bool) -> None:
    """Show a classification."""
    if as_json:
        print_json({"run": str(run.path), **result})
        return
    relations = sorted(result["by_relation"].items(), key=lambda item: -item[1]["triples"])
    rows = [["all", f"{result['triples']:,}", f"{result['accuracy']:.4f}", ""]]
    rows += [
        [name, f"{v['triples']:,}", f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"]
        for name, v in relations[:12]
    ]
    title = f"{run.name}: {result['split']}, negatives {result['negatives']}"
    print_table(["", "triples", "accuracy", "threshold"], rows, title)
    if len(relations) > 12:
        say(f"… and {len(relations) - 12} more relations; --json has them all")


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
        name = a["label"] if a["label"] == a["name"] else f"{a['label']} ({a['name']})"
        rows.append([f"{a['rank']}. {name}", f"{a['score']:.3f}", a["known"]])
    print_table([f"({asked})", "score", "known"], rows)
    if answer["known_facts_left_out"]:
        say(f"{answer['known_facts_left_out']} known facts left out; --known mark shows them")
