"""An audit on the terminal: its tables, then its findings in words."""

from typing import Any

from nscaching.audit import Audit
from nscaching.audit.rules import RULES
from nscaching.audit.splits import FINDINGS
from nscaching.cli.tables import print_table, say
from nscaching.data.graph import SPLITS
from nscaching.runs.escaping import shorten

SHORT = 44  # characters of a name
METRICS = {"mrr": "MRR", "hits@10": "Hit@10"}
ALWAYS = ("repeated", "leaking", "linked", "unseen_entity")  # said even where there are none


def show_audit(found: Audit) -> None:
    graph = found.graph
    splits = {split: found.of_split(split) for split in SPLITS if len(graph.split(split))}
    rows = []
    if graph.repeats:  # of a file that was split: the note of its loading says how many
        repeats = [f"{graph.repeats.get(split, 0):,}" for split in splits]
        rows.append(["stood twice in the split, and were dropped", *repeats])
    for finding, words in FINDINGS.items():
        counts = [of.get(finding, 0) for of in splits.values()]
        if finding in ALWAYS or any(counts):
            rows.append([words, *(_share(of, finding) for of in splits.values())])
    print_table([f"triples of {graph.name} that", *splits], rows)
    say("")
    if found.rules:
        rows = [
            [words, *(f"{of[rule][m]:.3f}" for of in found.rules.values() for m in METRICS)]
            for rule, words in RULES.items()
        ]
        headings = [f"{split} {name}" for split in found.rules for name in METRICS.values()]
        print_table(["trivial rules, filtered ranking", *headings], rows)
        say("")
    rows = [
        [kind, f"{of['relations']:,}", f"{of['triples']:,}", _names(found, of["such_as"])]
        for kind, of in found.relation_kinds().items()
        if of["relations"]
    ]
    if rows:
        print_table(["relations", "number", "triples", "such as"], rows, words=(0, 3))
        say("")
    rows = [
        [kind, f"{of['entities']:,}", _names(found, [one["name"] for one in of["such_as"]])]
        for kind, of in found.entity_kinds().items()
        if of["entities"]
    ]
    if rows:
        print_table(["entities", "number", "such as"], rows, words=(0, 2))
        say("")
    say(*found.sentences())


def audit_rows(found: Audit) -> list[dict[str, Any]]:
    """Return the figures of the tables as rows: what they are of, the split, the figures."""
    rows: list[dict[str, Any]] = []
    for split in SPLITS:
        of = found.of_split(split)
        counts = {finding: of[finding] for finding in FINDINGS if finding in of}
        for name, count in {"triples": of["triples"], **counts}.items():
            rows.append({"of": "triples", "name": name, "split": split, "triples": count})
    for split, scores in found.rules.items():
        rows += [{"of": "rule", "name": name, "split": split} | scores[name] for name in RULES]
    for what, kinds in (("relations", found.relation_kinds()), ("entities", found.entity_kinds())):
        for kind, said in kinds.items():
            figures = {key: value for key, value in said.items() if key != "such_as"}
            rows.append({"of": what, "name": kind} | figures)
    return rows


def show_removed(removed: dict[str, dict[str, int]]) -> None:
    """Say how many triples were taken away, and why."""
    rows = [
        [reason, *(f"{count:,}" for count in counts.values())]
        for reason, counts in removed.items()
        if any(counts.values())
    ]
    say("")
    if rows:
        print_table(["triples taken away", *SPLITS], rows)
    else:
        say("nothing was taken away")


def _share(counts: dict[str, int], finding: str) -> str:
    if finding not in counts:
        return ""
    count = counts[finding]
    return f"{count:,}  {count / counts['triples']:6.1%}"


def _names(found: Audit, names: list[str], most: int = 2) -> str:
    labels = found.graph.labels
    return ", ".join(shorten(labels.get(name, name), SHORT) for name in names[:most])
