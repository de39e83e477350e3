"""The verb ``classify``."""

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.tables import print_table, say
from nscaching.cli.verbs._base import AskRun, Run
from nscaching.cli.verbs.evaluate import largest_parts, say_more


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
        result = run.classify(self.split, self.task, self.relation or None)
        return {"run": str(run.path), **result}

    def show(self, run: Run, result: dict[str, Any]) -> None:
        title = f"{run.name}: {result['split']}"
        if self.task == "triples":
            _print_triples(result, title, run.graph.labels)
            return
        title += f", {run.graph.labels.get(result['relation'], result['relation'])}"
        if self.task == "entities":
            _print_entities(result, title)
        else:
            _print_pairs(result, title)


def _print_triples(result: dict[str, Any], title: str, labels: dict[str, str]) -> None:
    rows = [["all", f"{result['triples']:,}", f"{result['accuracy']:.4f}", ""]]
    parts, more = largest_parts(result["by_relation"])
    for name, v in parts:
        figures = f"{v['triples']:,}", f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"
        rows.append([labels.get(name, name), *figures])
    title += f", negatives {result['negatives']}"
    print_table(["", "triples", "accuracy", "threshold"], rows, title)
    say_more(more, "relations")


def _print_entities(result: dict[str, Any], title: str) -> None:
    def cells(values: dict[str, Any]) -> list[str]:
        return [f"{values[figure]:.4f}" for figure in ("accuracy", "mrr", "hits@3")]

    common = result["majority"]
    rows = [["all", "", f"{result['triples']:,}", *cells(result)]]
    rows.append([f"baseline: commonest first, {common['label']}", "", "", *cells(common)])
    parts, more = largest_parts(result["by_class"])
    rows += [[v["label"], f"{v['train']:,}", f"{v['triples']:,}", *cells(v)] for _, v in parts]
    title += f", {result['classes']} classes"
    print_table(["", "in train", "triples", "accuracy", "MRR", "Hit@3"], rows, title)
    if unseen := result["triples_of_unseen_classes"]:
        say(f"{unseen} triples are of classes that training does not have: counted as wrong")
    say_more(more, "classes")


def _print_pairs(result: dict[str, Any], title: str) -> None:
    kinds = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    rows = []
    for name, v in (("score", result["by_score"]), ("cosine", result["by_similarity"])):
        counts = [f"{v[kind]:,}" for kind in kinds]
        rows.append([name, *counts, f"{v['accuracy']:.4f}", f"{v['threshold']:.3f}"])
    title += f", {result['triples']:,} pairs, negatives {result['negatives']}"
    headings = ["by", *(kind.replace("_", " ") for kind in kinds), "accuracy", "threshold"]
    print_table(headings, rows, title)
