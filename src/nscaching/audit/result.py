"""The audit of a graph: its findings, as a dictionary and as sentences."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.audit import rules
from nscaching.audit.entities import Entities, all_triples
from nscaching.audit.overlaps import Flags, Progress, overlaps
from nscaching.audit.relations import KINDS, Relations, relations
from nscaching.audit.splits import FINDINGS, NOT_OF_TRAIN, findings
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.errors import counted, flag

EXAMPLES = 5  # names of a kind in the dictionary
MUCH = 0.05  # share of held-out triples that a sentence is worth


@dataclass(frozen=True, eq=False)
class Audit:
    """What is wrong with a graph, or worth knowing before a training."""

    graph: KnowledgeGraph
    relations: Relations
    entities: Entities
    triples: dict[str, dict[str, Flags]]
    """Split → finding → which of the triples."""
    rules: dict[str, dict[str, Any]]
    """Split → rule → metrics of a filtered ranking, for the held-out splits that have triples."""
    left_out: int
    """Triples whose entities have too many relations between them to compare these."""

    def __repr__(self) -> str:
        return f"Audit({self.graph.name}: {'; '.join(self.sentences()) or 'nothing found'})"

    def to_dict(self) -> dict[str, Any]:
        """Return all findings; numbers, names and lists only."""
        graph = self.graph
        return {
            "graph": graph.name,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "dropped_repeats": dict(graph.repeats),
            "splits": {split: self.of_split(split) for split in SPLITS},
            "rules": self.rules,
            "relation_kinds": self.relation_kinds(),
            "entity_kinds": self.entity_kinds(),
            "findings": self.sentences(),
            "left_out": self.left_out,
            "by_relation": [self.relations.to_dict(r) for r in self.by_size()],
        }

    def of_split(self, split: str) -> dict[str, int]:
        """Return how many triples of a split each finding is about."""
        flags = self.triples[split]
        counts = {name: int(flags[name].sum()) for name in FINDINGS if name in flags}
        if split == "train":
            counts = {name: n for name, n in counts.items() if name not in NOT_OF_TRAIN}
        return {"triples": len(self.graph.split(split)), **counts}

    def relation_kinds(self) -> dict[str, dict[str, Any]]:
        """Return kind → how many relations and triples, and the names of the largest."""
        found = {}
        for kind in KINDS:
            chosen = self.relations.kinds[kind]
            some = [r for r in self.by_size() if chosen[r]][:EXAMPLES]
            found[kind] = {
                "relations": int(chosen.sum()),
                "triples": int(self.relations.triples[chosen].sum()),
                "such_as": [self.graph.relations[r] for r in some],
            }
        return found

    def entity_kinds(self) -> dict[str, dict[str, Any]]:
        """Return kind → how many entities, and those of them with most triples."""
        return {
            kind: {
                "entities": int(chosen.sum()),
                "such_as": self.entities.largest(chosen, EXAMPLES),
            }
            for kind, chosen in self.entities.kinds.items()
        }

    def by_size(self) -> list[int]:
        """Return all relations, those with most triples first."""
        order: list[int] = np.argsort(-self.relations.triples, kind="stable").tolist()
        return order

    def sentences(self) -> list[str]:
        """Say in words what a user should know or do."""
        held_out = [split for split in ("test", "valid") if len(self.graph.split(split))]
        none = ["no valid or test triples: nothing to compare with train"]
        said = self._of_leaks(held_out[0]) if held_out else none
        for split in held_out:
            flags = self.triples[split]
            if repeated := int(flags["repeated"].sum()):
                said.append(f"{counted(repeated, f'{split} triple')} in an earlier split too")
            if unseen := int((flags["unseen_entity"] | flags["unseen_relation"]).sum()):
                them = "it" if unseen == 1 else "these"
                what = f"a name that train has not: a model ranks {them} by chance"
                said.append(f"{counted(unseen, f'{split} triple')} with {what}")
        return [*said, *self._of_names()]

    def _of_leaks(self, split: str) -> list[str]:
        count, said = self.of_split(split), []
        if count["linked"] >= MUCH * count["triples"]:
            share = {name: f"{n / count['triples']:.0%}" for name, n in count.items()}
            said.append(
                f"{share['linked']} of the {split} triples have their entities linked in train "
                f"already; {share['leaking']} by an inverse or twin relation, {share['reverse']} "
                "by the same relation turned"
            )
        best = max(self.rules[split].values(), key=lambda found: found["mrr"])
        score = f"MRR {best['mrr']:.3f} and Hit@10 {best['hits@10']:.3f}"
        return [*said, f"trivial rules score {score} on {split}"]

    def _of_names(self) -> list[str]:
        blank, plumbing = self.entities.kinds["blank node"], self.relations.kinds["plumbing"]
        said = []
        if blank.any():
            count = sum(int(flags["blank_node"].sum()) for flags in self.triples.values())
            nodes = counted(int(blank.sum()), "blank node")
            drop = flag("drop_blank_nodes")
            said.append(f"{nodes} in {counted(count, 'triple')}, which {drop} takes away")
        if plumbing.any():
            count = int(self.relations.triples[plumbing].sum())
            kinds = counted(int(plumbing.sum()), "relation")
            names = [self.graph.relation_label(r) for r in self.by_size() if plumbing[r]]
            drop = " ".join([flag("drop_relations"), *map(shlex.quote, names)])
            said.append(f"{kinds} of RDF's plumbing in {counted(count, 'triple')}: {drop}")
        if constant := int(self.relations.kinds["constant"].sum()):
            said.append(f"{counted(constant, 'relation')} with nearly always the same answer")
        if self.left_out:
            what = "of entities with too many relations between them to compare these"
            said.append(f"{counted(self.left_out, 'triple')} {what}")
        return said

    def write_page(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the audit as one HTML page."""
        from nscaching.audit.page import write_page

        return write_page(self, path, overwrite)


def audit(graph: KnowledgeGraph, progress: Progress | None = None) -> Audit:
    """Audit a graph; ``progress`` is called with (the task, units done, units in all)."""
    report = progress or (lambda what, done, of: None)
    known = overlaps(all_triples(graph), len(graph.entities), len(graph.relations), report)
    found = relations(graph, known)
    triples = findings(graph, found, report)
    scored = rules.scores(graph, report)
    return Audit(graph, found, Entities.of(graph), triples, scored, known.left_out)
