"""The verbs ``predict``, ``neighbours`` and ``inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from tyro.conf import Positional, arg

from nscaching.cli.tables import LONGEST, cells, print_table, say
from nscaching.cli.verbs._base import AskTable, Run
from nscaching.errors import counted
from nscaching.runs.escaping import shorten

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph

PARTS = ("head", "relation", "tail")
SHORT = 80  # characters of a name in a table of ``inspect``; JSON has all of them


@dataclass(frozen=True, kw_only=True)
class Predict(AskTable):
    """Answer a triple with one gap, or judge a whole one; names or labels.

    nscaching predict runs/x --head Portugal --relation borders --top 5
    """

    head: str = ""
    """The head entity, by name or label; --head=NAME where it begins with a dash."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity; leave out what is asked for."""
    top: int = 10
    """How many answers."""
    known: Literal["hide", "mark"] = "hide"
    """Leave known facts out, or mark them."""
    prior: float | None = None
    """Share of true triples that probabilities assume; None: an answer has the probability that
    such answers had on validation queries, a whole triple that of the validation triples."""
    any_type: Annotated[bool, arg(name="any")] = False
    """Rank by score alone, without putting first the entities that the relation has on that side
    in training; a relation without loops there may lead back to the entity that was asked about."""

    def load(self) -> Run:
        from nscaching.runs.quick import open_quickly

        whole = self.head and self.relation and self.tail  # judged by figures of validation
        if self.device == "cuda" or whole:
            return super().load()
        quick = open_quickly(self.path, self.trust)  # which predicts as a ``Run`` does
        return super().load() if quick is None else cast("Run", quick)

    def ask(self, run: Run) -> dict[str, Any]:
        question = self.head or None, self.relation or None, self.tail or None
        options: dict[str, Any] = {"top": self.top, "known": self.known, "any_type": self.any_type}
        (result,) = run.predict(*question, prior=self.prior, **options).queries
        return result

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        question = {part: result[part] for part in PARTS}
        if "answers" not in result:  # a whole triple
            return [question | {k: v for k, v in result.items() if k not in question}]
        (gap,) = (part for part in PARTS if question[part] is None)
        return [question | {gap: each["label"]} | each for each in result["answers"]]

    def show(self, run: Run, result: dict[str, Any]) -> None:
        if "answers" in result:
            print_answers(result, run.graph)
            return
        judgement = f"score {result['score']:.3f}"
        if result["probability"] is not None:
            judgement = f"probability {result['probability']:.3f}, {judgement}"
        if result["threshold"] is not None:
            verdict = "plausible" if result["plausible"] else "implausible"
            threshold = f"threshold of its relation {result['threshold']:.3f}"
            judgement = f"{verdict}; {judgement}, {threshold}"
        known = f"known, from {result['known']}" if result["known"] else "not in the data"
        say(f"{asked(result)}: {judgement}; {known}")
        _say_meaning(result)


@dataclass(frozen=True, kw_only=True)
class Neighbours(AskTable):
    """List the entities whose vectors are nearest to the vector of an entity.

    nscaching neighbours runs/x Portugal --top 5
    """

    name: Annotated[Positional[str], arg(metavar="NAME", help="An entity, by name or label.")]
    top: int = 10
    """How many."""
    by: Literal["cosine", "distance"] = "cosine"
    """What nearness is: the angle between the vectors, or their Euclidean distance."""

    def ask(self, run: Run) -> dict[str, Any]:
        return run.neighbours(self.name, self.top, self.by)

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"entity": result["label"]} | each for each in result["neighbours"]]

    def show(self, run: Run, result: dict[str, Any]) -> None:
        near = result["neighbours"]
        rows = [
            [f"{each['rank']}. {named(each, run.graph)}", f"{each[self.by]:.4f}"] for each in near
        ]
        print_table([f"nearest to {result['label']}", self.by], rows)


@dataclass(frozen=True, kw_only=True)
class Inspect(AskTable):
    """Show the cached negatives of (head, relation, ?) or of (?, relation, tail), by name.

    nscaching inspect runs/x --head Portugal --relation borders --sample 5
    """

    head: str = ""
    """The head entity of (head, relation, ?), by name or label."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity of (?, relation, tail), instead of a head."""
    epoch: int | None = None
    """An epoch that --snapshots kept in training, or the last; None: the last, or all of them
    with --sample or --top."""
    sample: int | None = None
    """Show so many entities of each epoch, drawn by seed; None: all."""
    top: int | None = None
    """Show so many entities of each epoch, those that the run's model scores best; None: all."""
    seed: int = 0
    """Seed of --sample."""

    def ask(self, run: Run) -> dict[str, Any]:
        query = self.head or None, self.relation or None, self.tail or None
        epoch, sample = self.epoch, self.sample
        return run.inspect(*query, epoch=epoch, sample=sample, top=self.top, seed=self.seed)

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"epoch": e["epoch"]} | each for e in result["epochs"] for each in e["entities"]]

    def show(self, run: Run, result: dict[str, Any]) -> None:
        side = "tails" if result["tail"] is None else "heads"
        of_relation = f"{side} of {shorten(result['relation'], SHORT)} in training"
        query, epochs = asked(result, SHORT), result["epochs"]
        if len(epochs) > 1:
            _print_epochs(epochs, query, side)
            say(f"{side}: how many of them are {of_relation}")
        else:
            (only,) = epochs
            rows = [
                [named(e, run.graph, SHORT), f"{e['score']:.3f}", e["known"]]
                for e in only["entities"]
            ]
            print_table([f"{query} at epoch {only['epoch']}", "score", "known"], rows)
            make = "makes a known triple" if only["known"] == 1 else "make known triples"
            known = f"{only['known']} of them {make}"
            counts = f"{known}, {only['of_relation']} are {of_relation}"
            entities = counted(only["distinct"], "entity", "entities")
            say(f"{entities} in {counted(only['slots'], 'slot')}; {counts}")
        if others := sorted(set(result["recorded"]) - {e["epoch"] for e in epochs}):
            recorded = ", ".join(map(str, others))
            say(f"other recorded epochs: {recorded}; --sample 5 shows all together")


def print_answers(result: dict[str, Any], graph: KnowledgeGraph) -> None:
    answers = result["answers"]
    likely = any(answer["probability"] is not None for answer in answers)
    figures = ["score", "probability"] if likely else ["score"]
    headings = [asked(result), *figures, "known"]
    rows = [
        [f"{answer['rank']}. {named(answer, graph)}", *cells(answer, *figures), answer["known"]]
        for answer in answers
    ]
    others = [not answer.get("of_relation", True) for answer in answers]
    if any(others):
        headings.append("type")
        rows = [[*row, "other" * other] for row, other in zip(rows, others, strict=True)]
    if rows:
        print_table(headings, rows)
        _say_meaning(result)
    else:
        say(f"{asked(result)}: no answer is left")
    if any(others):
        side = "head" if result["head"] is None else "tail"
        say(f"other: never a {side} of {shorten(result['relation'], SHORT)} in training")
    if hidden := result["known_facts_left_out"]:
        them = "it" if hidden == 1 else "them"
        say(f"{counted(hidden, 'known fact')} left out; --known mark shows {them}")


def _say_meaning(result: dict[str, Any]) -> None:
    """Say what the probabilities follow from."""
    if result["prior"] is not None:
        say_prior(result["prior"])
    elif queries := result["fitted_on_queries"]:
        validation = counted(queries, "validation query", "validation queries")
        say(f"probability: share of such answers that were right, in {validation}")


def say_prior(prior: float) -> None:
    say(f"probability: for a share of {prior:.3g} true triples, the prior (--prior changes it)")


def asked(result: dict[str, Any], longest: int = LONGEST) -> str:
    parts = (shorten(result[part] or "?", longest) for part in ("head", "relation", "tail"))
    return f"({', '.join(parts)})"


def named(entity: dict[str, Any], graph: KnowledgeGraph, longest: int = LONGEST) -> str:
    """Return the label of an entity, with its name in short where the label hides it."""
    name, label = entity["name"], entity["label"]
    plain = label == name or is_short_form(label, name)
    return shorten(label, longest) + ("" if plain else f" ({shorten(graph.short(name), longest)})")


def is_short_form(label: str, name: str) -> bool:
    _, colon, rest = label.partition(":")
    return bool(colon and rest) and ":" in name and label != name and name.endswith(rest)


def _print_epochs(epochs: list[dict[str, Any]], query: str, side: str) -> None:
    rows = []
    for e in epochs:
        shares = [f"{e[count]}/{e['distinct']}" for count in ("known", "of_relation")]
        marked = [shorten(x["label"], SHORT) + "*" * bool(x["known"]) for x in e["entities"]]
        rows.append([str(e["epoch"]), *shares, ", ".join(marked)])
    print_table(["epoch", "known", side, f"cache of {query}"], rows, words=[3])
    say("known: how many of all cached entities make known triples; here * marks them")
