"""The verbs ``evaluate`` and ``classify``."""

from dataclasses import dataclass
from typing import Any, Literal

from nscaching.cli.rows import of_parts
from nscaching.cli.tables import HEADINGS, cells, note, print_table, say
from nscaching.cli.verbs._base import AskTable, Run
from nscaching.cli.verbs.predict import say_prior
from nscaching.errors import UserError, as_flag, check_bounds, counted

PARTS = {"relations": "by_relation", "classes": "by_class"}
MOST = 12  # relations or classes in a table


@dataclass(frozen=True, kw_only=True)
class Evaluate(AskTable):
    """Rank the triples of a split: MRR, MR, Hit@1/3/10, by side, mapping class and relation.

    nscaching evaluate runs/x --split test --json
    """

    task: Literal["links", "relations", "calibration"] = "links"
    """What to rank: the head and the tail among all entities, or the relation of (h, ?, t). With
    calibration: how far the probabilities of triples can be trusted."""
    split: Literal["train", "valid", "test"] = "test"
    """Which triples to rank."""
    raw: bool = False
    """Let other known answers count too."""
    typed: bool = False
    """Show beside it the ranking in the order of predict: entities of the relation's type first."""
    ties: Literal["realistic", "optimistic", "pessimistic"] = "realistic"
    """How equal scores rank."""
    candidates: int = 0
    """Random entities that each answer is ranked among; 0: all entities."""
    seed: int = 0
    """Which random entities."""
    memory_mb: int = 512
    """Memory for the scores of one chunk of queries."""
    prior: float | None = None
    """Share of true triples that probabilities assume; None: that of the validation triples."""
    write: bool = False
    """With calibration: write calibration.json into the run folder, which keeps it."""

    def ask(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow

        check_bounds("memory_mb", self.memory_mb, 1)
        _note_unfinished(run)
        if self.task == "calibration":
            return {"run": str(run.path), **self._ask_calibration(run)}
        if self.prior is not None or self.write:
            one = "prior" if self.prior is not None else "write"
            raise UserError(f"{as_flag(one)} goes with --task calibration only")
        options = {"filtered": not self.raw, "ties": self.ties, "budget": self.memory_mb << 20}
        if self.candidates:
            options |= {"candidates": self.candidates, "seed": self.seed}
        elif self.seed:
            raise UserError("--seed goes with --candidates only")
        with when_slow(f"ranking {self.split}") as bar:
            result = run.evaluate(self.split, self.task, self.typed, progress=bar, **options)
        return {"run": str(run.path), **result}

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        if self.task == "calibration":
            return list(result["bins"])
        typed = [{"part": "all, by type"} | result["typed"]] if self.typed else []
        return [*of_parts(result), *typed]

    def _ask_calibration(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow

        if self.raw or self.ties != "realistic" or self.candidates or self.seed:
            one = "--candidates and --seed" if self.candidates or self.seed else "--raw and --ties"
            raise UserError(f"{one} are of rankings: --task calibration ranks nothing")
        with when_slow(f"probabilities of {self.split}"):
            result = run.evaluate(self.split, self.task, prior=self.prior)
            if self.write:
                result["written"] = str(run.write_calibration())
        return result

    def show(self, run: Run, result: dict[str, Any]) -> None:
        if self.task == "calibration":
            _show_calibration(run, result)
            return
        mode = "filtered" if result["filtered"] else "raw"
        what = " relations," if self.task == "relations" else ""
        title = f"{run.name}:{what} {result['split']}, {mode}, {result['ties']} ties"
        if "seed" in result:
            title += f", among {result['candidates']:,} sampled candidates (seed {result['seed']})"
        first = {"all": result}
        if typed := result.get("typed"):
            first["all, by type"] = typed
        first |= {f"{side} side": values for side, values in result.get("by_side", {}).items()}
        first |= result.get("by_class", {})
        headings = {"triples": "triples", **HEADINGS}
        _print_parts(run, title, headings, first, "relations")
        if "seed" in result:
            _say_sampled(run, result)
        elif self.candidates:  # as many as there are entities, or more
            all_of_them = counted(len(run.graph.entities), "entity", "entities")
            say(f"the ranking is full: there are {all_of_them}")
        if typed:
            say("by type: the entities that training has on that side of the relation go first")
            say(f"{typed['outside']:,} of {counted(typed['answers'], 'answer')} are not among them")


def _say_sampled(run: Run, result: dict[str, Any]) -> None:
    """Say how sure the figures of a sample are, and what a full ranking would give."""
    errors, full = result["standard_error"], result["full_ranking"]
    names = {"mrr": "MRR", "mr": "MR", **{f"hits@{k}": f"Hit@{k}" for k in (1, 3, 10)}}
    sure = ", ".join(f"{names[n]} ±{e:.4f}" for n, e in errors.items() if e is not None)
    if sure:
        say(f"standard errors, if other triples and candidates were drawn: {sure}")
    each = (len(run.graph.entities) - 1) / result["candidates"]
    within = f" ±{e:.1f}" if (e := full["mr_standard_error"]) is not None else ""
    say("sampled ranks are better than full ranks: not to be compared with a full ranking")
    say(
        f"full ranking, estimated: MR {full['mr']:,.1f}{within}, MRR between "
        f"{full['mrr_at_least']:.4f} and {full['mrr_at_most']:.4f}: a candidate stands for "
        f"{each:,.1f} entities, so the sample does not tell the first places apart"
    )


@dataclass(frozen=True, kw_only=True)
class Classify(AskTable):
    """Tell true from false triples, by a threshold per relation fitted on validation.

    nscaching classify runs/x --task entities --relation in_subregion
    """

    task: Literal["triples", "entities", "linking"] = "triples"
    """Is a triple true? With --relation: which class is an entity of, which two are the same?"""
    prior: float | None = None
    """Share of true triples that probabilities assume; None: that of the validation triples."""
    relation: str = ""
    """Relation that gives the class of an entity (such as IsA), or equal entities (EqualTo)."""
    split: Literal["valid", "test"] = "test"
    """Which triples to classify."""

    def ask(self, run: Run) -> dict[str, Any]:
        result = run.classify(self.split, self.task, self.relation or None, self.prior)
        return {"run": str(run.path), **result}

    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        if self.task == "linking":
            return [{"by": by} | result[f"by_{by}"] for by in ("score", "similarity")]
        majority = {"part": "baseline: commonest first"} | result.get("majority", {})
        return [*of_parts(result), *[majority] * (len(majority) > 1)]

    def show(self, run: Run, result: dict[str, Any]) -> None:
        title = f"{run.name}: {result['split']}, "
        first = {"all": result}
        if self.task == "triples":
            headings = {name: name for name in ("triples", "accuracy", "threshold")}
            headings["threshold_probability"] = "probability"
            _print_parts(run, title + _negatives(result), headings, first, "relations")
            say(f"thresholds: from validation, {_negatives(result['validation'])}")
            if "prior" in result:
                say_prior(result["prior"])
            return
        title += f"{run.graph.labels.get(result['relation'], result['relation'])}, "
        if self.task == "linking":
            title += f"{counted(result['triples'], 'pair')}, {_negatives(result)}"
            figures = ["true_positives", "false_positives", "true_negatives", "false_negatives"]
            figures += ["accuracy", "threshold"]
            judges = {"score": result["by_score"], "cosine": result["by_similarity"]}
            rows = [[name, *cells(values, *figures)] for name, values in judges.items()]
            print_table(["by", *(figure.replace("_", " ") for figure in figures)], rows, title)
            return
        title += counted(result["classes"], "class", "classes")
        headings = {"train": "in train", "triples": "triples", "accuracy": "accuracy"}
        headings |= {"mrr": "MRR", "hits@3": "Hit@3"}
        common = result["majority"]
        first[f"baseline: commonest first, {common['label']}"] = common
        _print_parts(run, title, headings, first, "classes")
        if unseen := result["triples_of_unseen_classes"]:
            triples = counted(unseen, "triple is", "triples are")
            say(f"{triples} of classes that training does not have: counted as wrong")


def _note_unfinished(run: Run) -> None:
    """Say which epoch is ranked if the training of the run has not ended."""
    from nscaching.runs.folder import RunFolder, has_ended, resume_command

    if run.path is None or has_ended(run.path):
        return
    trained = sum("split" not in record for record in run.history)
    state = "is still training" if RunFolder(run.path).in_use else "was interrupted"
    epochs = f"{trained} of {run.config.epochs} epochs are trained"
    note(f"note: {run.path} {state}: {epochs}; the parameters are those of epoch {run.best_epoch}")
    if state == "was interrupted":
        note(f"note: to resume: {resume_command(run.path)}")


def _negatives(found: dict[str, Any]) -> str:
    left = found["known_negatives_left_out"]
    known = "is a known triple" if left == 1 else "are known triples"
    left_out = f"; {left:,} more {known} and left out" if left else ""
    return f"{counted(found['false'], 'negative')} {_origin(found['negatives'])}{left_out}"


def _origin(negatives: str) -> str:
    from nscaching.evaluation.labelled import MADE

    return negatives if negatives == MADE else f"of {negatives}"


def _show_calibration(run: Run, result: dict[str, Any]) -> None:
    rows = [
        [f"{one['from']:.2f} to {one['to']:.2f}", *cells(one, "triples", "probability", "share")]
        for one in result["bins"]
    ]
    rows.append(["all", *cells(result, "triples", "probability", "share")])
    title = f"{run.name}: probabilities, {result['split']}"
    print_table(["probability", "triples", "mean", "share true"], rows, title)
    error, brier = result["expected_calibration_error"], result["brier"]
    bins = f"{result['possible_bins']} bins of equal width"
    say(f"expected calibration error {error:.4f} ({bins}), Brier score {brier:.4f}")
    say(f"{result['split']}: {result['true']:,} true triples, {_negatives(result)}")
    if answers := result["answers"]:
        best, error = answers["best"], answers["expected_calibration_error"]
        queries = counted(answers["queries"], "query", "queries")
        asked = f"the best {counted(answers['answers'], 'answer')} to {queries}"
        say(f"{asked}: expected calibration error {error:.4f}, Brier score {answers['brier']:.4f}")
        means = f"mean probability {best['probability']:.3f}, share right {best['share']:.3f}"
        say(f"the first answer to each: {means}")
    on = result["fitted_on"]
    say(f"fitted on {on['triples']:,} validation triples, negatives {_origin(on['negatives'])}")
    own = "relation with a curve of its own", "relations with a curve of their own"
    say(counted(on["relations"], *own))
    say(f"prior, the share of true triples: {result['prior']:.3f}")
    if "written" in result:
        say(f"calibration: {result['written']}")


def _print_parts(
    run: Run, title: str, headings: dict[str, str], first: dict[str, Any], what: str
) -> None:
    labels, parts = run.graph.labels, first["all"][PARTS[what]]
    largest = sorted(parts.items(), key=lambda item: -item[1]["triples"])[:MOST]
    named = [(labels.get(name, name), part) for name, part in largest]
    rows = [[name, *cells(values, *headings)] for name, values in [*first.items(), *named]]
    print_table(["", *headings.values()], rows, title)
    if more := len(parts) - len(largest):
        one = {"relations": "relation", "classes": "class"}[what]
        say(f"… and {counted(more, f'more {one}', f'more {what}')}; --json has them all")
