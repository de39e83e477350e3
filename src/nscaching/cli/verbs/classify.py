"""The verb ``classify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nscaching.cli.tables import print_table, say
from nscaching.cli.verbs._base import AskRun
from nscaching.cli.verbs.evaluate import largest_parts, say_more

if TYPE_CHECKING:
    from nscaching.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Classify(AskRun):
    """Tell true from false triples, by a threshold per relation fitted on validation.

    nscaching classify runs/x --task entities --relation in_subregion
    """

    task: Literal["triples", "entities", "linking"] = "triples"
    """Is a triple true? With --relation: which class is an entity of, which two are the same?"""
    relation: str = ""
    """Relation that gives the class of an entity (such as IsA), or equal entities (EqualTo)."""
    split: Literal["valid", "test"] = "test"
    """Which triples to classify."""

    def ask(self, run: Run) -> dict[str, Any]:
        """Classify the triples of the split."""
        result = run.classify(self.split, self.task, self.relation or None)
        return {"run": str(run.path), **result}

    def show(self, run: Run, result: dict[str, Any]) -> None:
        """Print the table of the task."""
        tables = {"triples": _print_triples, "entities": _print_entities, "linking": _print_pairs}
        tables[self.task](run, result)


def _print_triples(run: Run, result: dict[str, Any]) -> None:
    parts, more = largest_parts(result["by_relation"])
    rows = [["all", f"{result['triples']:,}", f"{result['accuracy']:.4f}", ""]]
    for name, v in parts:
        figures = f"{v['triples']:,}", f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"
        rows.append([run.graph.labels.get(name, name), *figures])
    title = f"{run.name}: {result['split']}, negatives {result['negatives']}"
    print_table(["", "triples", "accuracy", "threshold"], rows, title)
    say_more(more, "relations")


def _print_entities(run: Run, result: dict[str, Any]) -> None:
    def cells(values: dict[str, Any]) -> list[str]:
        return [f"{values[figure]:.4f}" for figure in ("accuracy", "mrr", "hits@3")]

    rows = [["all", "", f"{result['triples']:,}", *cells(result)]]
    common = result["majority"]
    rows.append([f"baseline: commonest first, {common['label']}", "", "", *cells(common)])
    parts, more = largest_parts(result["by_class"])
    rows += [[v["label"], f"{v['train']:,}", f"{v['triples']:,}", *cells(v)] for _, v in parts]
    relation = run.graph.labels.get(result["relation"], result["relation"])
    title = f"{run.name}: {result['split']}, {relation}, {result['classes']} classes"
    print_table(["", "in train", "triples", "accuracy", "MRR", "Hit@3"], rows, title)
    if unseen := result["triples_of_unseen_classes"]:
        say(f"{unseen} triples are of classes that training does not have: counted as wrong")
    say_more(more, "classes")


def _print_pairs(run: Run, result: dict[str, Any]) -> None:
    kinds = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    rows = []
    for name, v in (("score", result["by_score"]), ("cosine", result["by_similarity"])):
        counts = [f"{v[kind]:,}" for kind in kinds]
        rows.append([name, *counts, f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"])
    relation = run.graph.labels.get(result["relation"], result["relation"])
    title = (
        f"{run.name}: {result['split']}, {relation}, {result['triples']:,} pairs, "
        f"negatives {result['negatives']}"
    )
    headings = ["by", *(kind.replace("_", " ") for kind in kinds), "accuracy", "threshold"]
    print_table(headings, rows, title)
