"""The verb ``classify``."""

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.tables import cells, print_table, say
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
        tables = {"triples": _print_triples, "entities": _print_entities, "linking": _print_pairs}
        title = f"{run.name}: {result['split']}, "
        if self.task != "triples":
            title += f"{run.graph.labels.get(result['relation'], result['relation'])}, "
        tables[self.task](result, title, run.graph.labels)


def _print_triples(result: dict[str, Any], title: str, labels: dict[str, str]) -> None:
    figures = ["triples", "accuracy", "threshold"]
    parts, more = largest_parts(result["by_relation"], labels)
    rows = [[name, *cells(values, *figures)] for name, values in [("all", result), *parts]]
    print_table(["", *figures], rows, f"{title}negatives {result['negatives']}")
    say_more(more, "relations")


def _print_entities(result: dict[str, Any], title: str, labels: dict[str, str]) -> None:
    figures = {"train": "in train", "triples": "triples", "accuracy": "accuracy"}
    figures |= {"mrr": "MRR", "hits@3": "Hit@3"}
    parts, more = largest_parts(result["by_class"], labels)
    common = result["majority"]
    baseline = f"baseline: commonest first, {common['label']}"
    classes = [(part["label"], part) for _, part in parts]
    rows = [
        [name, *cells(values, *figures)]
        for name, values in [("all", result), (baseline, common), *classes]
    ]
    print_table(["", *figures.values()], rows, f"{title}{result['classes']} classes")
    if unseen := result["triples_of_unseen_classes"]:
        say(f"{unseen} triples are of classes that training does not have: counted as wrong")
    say_more(more, "classes")


def _print_pairs(result: dict[str, Any], title: str, _: dict[str, str]) -> None:
    figures = ["true_positives", "false_positives", "true_negatives", "false_negatives"]
    figures += ["accuracy", "threshold"]
    judges = {"score": result["by_score"], "cosine": result["by_similarity"]}
    rows = [[name, *cells(values, *figures)] for name, values in judges.items()]
    title += f"{result['triples']:,} pairs, negatives {result['negatives']}"
    print_table(["by", *(figure.replace("_", " ") for figure in figures)], rows, title)
