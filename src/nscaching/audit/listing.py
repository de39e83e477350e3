"""Lists of what a graph names: its relations, and entities by a pattern."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import numpy as np

from nscaching.audit.entities import Entities, all_triples
from nscaching.audit.overlaps import Progress, overlaps
from nscaching.audit.relations import relations
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import check_bounds, unknown


def list_relations(graph: KnowledgeGraph, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Return what is known about each relation, those with most triples first."""
    report = progress or (lambda what, done, of: None)
    known = overlaps(all_triples(graph), len(graph.entities), len(graph.relations), report)
    found = relations(graph, known)
    order = np.argsort(-found.triples, kind="stable")
    return [found.to_dict(int(relation)) for relation in order]


def find_entities(graph: KnowledgeGraph, pattern: str = "", top: int = 20) -> dict[str, Any]:
    """Return the entities whose name or label matches, those with most triples first.

    A pattern is a part of the name, or of the whole name if it holds ``*`` or ``?``; in any case of
    the letters. A UserError names the nearest entities where none matches.
    """
    check_bounds("top", top, 1)
    folded = pattern.casefold()
    wild = any(mark in pattern for mark in "*?")
    matches = re.compile(re.escape(folded)).search
    if wild:
        matches = re.compile(fnmatch.translate(folded)).match
    names = ((name, graph.label(i)) for i, name in enumerate(graph.entities))
    chosen = np.array([any(matches(x.casefold()) for x in both) for both in names], dtype=bool)
    if not chosen.any():
        labels = (graph.label(i) for i in range(len(graph.entities)))
        raise unknown("entity", pattern, dict.fromkeys([*labels, *graph.entities]))
    largest = Entities.of(graph).largest(chosen, top)
    return {"pattern": pattern, "matches": int(chosen.sum()), "entities": largest}
