"""Triples with a truth value: from the files of the data set, or with negatives made by seed."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from nscaching.data.graph import KnowledgeGraph, Labelled
from nscaching.data.index import Ids, Side
from nscaching.errors import UserError
from nscaching.evaluation.ranking import non_empty, rows_by

# Seed of generated negatives: fixed, so that all runs on a graph are judged by the same triples.
NEGATIVE_SEED = 2019
MADE = f"made by seed {NEGATIVE_SEED}"


def labelled_triples(graph: KnowledgeGraph, split: str, most: int | None = None) -> Labelled:
    """Return true and false triples of a split: from the data set's files, or else made by seed.

    A file of negatives alone takes its true triples from the split. A negative that is a known
    triple is left out: the data say both, so no answer to it is right. A made negative is no known
    triple; where all entities seen on its side of the relation would make one, any other entity
    serves. Of more than ``most`` true triples, so many are chosen by seed, and of given negatives
    as many.
    """
    if has_labelled(graph, split):
        return _chosen(given_triples(graph, split), most)

    everyone = np.arange(len(graph.entities), dtype=np.int32)

    def untrue(triple: Ids, column: int, seen: Ids) -> Ids:
        index = graph.filter_index[Side.HEAD if column == 0 else Side.TAIL]
        start, end = index.runs(triple[[2 - column]], triple[[1]])
        taken = index.answers[start[0] : end[0]]
        left = _without(seen, taken)
        return left if len(left) else _without(everyone, taken)

    positives = non_empty(graph, split, "classify")
    true = Labelled(positives, np.ones(len(positives), dtype=bool), "")
    return with_negatives(graph, _chosen(true, most).triples, untrue)


def has_labelled(graph: KnowledgeGraph, split: str) -> bool:
    """Say whether the data have negatives, or triples with a truth value, for a split."""
    return split in graph.labelled and len(graph.labelled[split].truth) > 0


def has_validation(graph: KnowledgeGraph) -> bool:
    """Say whether there are validation triples to fit thresholds and probabilities on."""
    given = graph.labelled.get("valid")
    return len(graph.valid) > 0 or (given is not None and bool(given.truth.any()))


def described(labelled: Labelled) -> dict[str, Any]:
    """Return how many triples there are, and where the false ones come from, for a report."""
    return {
        "true": int(labelled.truth.sum()),
        "false": int((~labelled.truth).sum()),
        "negatives": labelled.origin,
        "known_negatives_left_out": labelled.left_out,
    }


def given_triples(graph: KnowledgeGraph, split: str, relation: int | None = None) -> Labelled:
    """Return what the data set's files say of a split, or of one relation of it."""
    given = graph.labelled[split]
    triples, truth = given.triples, given.truth
    if not truth.any():  # a file of negatives alone
        positives = non_empty(graph, split, "classify")
        triples = np.concatenate([positives, triples])
        truth = np.arange(len(triples)) < len(positives)
    if relation is not None:
        of = triples[:, 1] == relation
        triples, truth = triples[of], truth[of]
    both = ~truth & graph.holds(triples)
    if both.any() and both.sum() == (~truth).sum():
        raise UserError(f"{given.origin}: all its {both.sum():,} negatives are known triples")
    return Labelled(triples[~both], truth[~both], given.origin, int(both.sum()))


def _chosen(labelled: Labelled, most: int | None) -> Labelled:
    """Return at most so many true and so many false triples, chosen by seed, in their order."""
    random = np.random.default_rng(NEGATIVE_SEED)
    kept = np.ones(len(labelled.truth), dtype=bool)
    for rows in (np.flatnonzero(labelled.truth), np.flatnonzero(~labelled.truth)):
        if most is not None and len(rows) > most:
            kept[random.permutation(rows)[most:]] = False
    return replace(labelled, triples=labelled.triples[kept], truth=labelled.truth[kept])


def _without(ids: Ids, taken: Ids) -> Ids:
    """Return the ascending ids that are not among some other ascending ids."""
    kept = np.ones(len(ids), dtype=bool)
    place = np.searchsorted(ids, taken)
    inside = place < len(ids)
    place, taken = place[inside], taken[inside]
    kept[place[ids[place] == taken]] = False
    return ids[kept]


def with_negatives(
    graph: KnowledgeGraph, triples: Ids, choose: Callable[[Ids, int, Ids], Ids]
) -> Labelled:
    """Return the triples [n, 3] as true ones, and a negative of each, made by seed.

    A negative replaces the head or the tail. ``choose`` receives the triple, the column and the
    entities seen there with the relation in training, and returns the entities that may replace
    that of the triple. If there are none, the triple gets no negative.
    """
    rows, none = dict(rows_by(graph.train[:, 1])), np.empty(0, dtype=np.intp)

    @cache
    def seen(relation: int, column: int) -> Ids:
        entities = np.sort(graph.train[rows.get(relation, none), column])
        fresh: Ids = entities[np.diff(entities, prepend=-1) > 0]
        return fresh

    random = np.random.default_rng(NEGATIVE_SEED)
    both = list(triples)
    for triple in triples:
        column = 0 if random.random() < 0.5 else 2
        choice = choose(triple, column, seen(int(triple[1]), column))
        if len(choice):
            both.append(triple.copy())
            both[-1][column] = random.choice(choice)
    truth = np.arange(len(both)) < len(triples)
    made = np.array(both, dtype=np.int32).reshape(-1, 3)
    return Labelled(made, truth, MADE)
