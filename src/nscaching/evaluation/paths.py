"""Paths of up to three steps between two entities, and how often such paths hold for a relation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Longs
from nscaching.data.sorting import counted_out

LONGEST = 3  # steps
MOST_PATHS = 1_000_000  # between two entities; of more, a part drawn by seed is looked at
MOST_KINDS = 200  # sequences of relations whose confidence is counted
STARTS = 300  # entities from which a sequence is followed, drawn by seed where there are more
MOST_ROWS = 500_000  # of paths in memory; beyond it, fewer starts
DOUBT = 5  # pairs without the relation that are added to those seen: AnyBURL's pessimism


@dataclass(frozen=True)
class PathKind:
    """A sequence of relations from head to tail, and how often it comes with the relation asked."""

    steps: tuple[int, ...]  # relation r, or r + |R| against its direction
    paths: int  # of this kind between the two entities
    example: tuple[int, ...]  # the entities of one of them, from head to tail
    pairs: int  # pairs (x, y), other than the two entities, that such a path connects in training
    support: int  # those of the pairs for which (x, relation, y) is in training
    starts: int  # entities x from which paths were followed
    starts_in_all: int

    @property
    def confidence(self) -> float:
        return self.support / self.pairs if self.pairs else 0.0

    @property
    def worth(self) -> float:
        """The confidence, lower where few pairs speak for it."""
        return self.support / (self.pairs + DOUBT)


class Steps:
    """The training triples as steps (begin, kind, end), each in both directions; loops left out.

    ``kind`` is the relation r, or r + |R| against its direction.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        head, relation, tail = graph.train[graph.train[:, 0] != graph.train[:, 2]].T.astype(
            np.int64
        )
        self.relations, self.kinds = len(graph.relations), 2 * len(graph.relations)
        self.entities = len(graph.entities)
        code = np.concatenate([head, tail]) * self.kinds
        code += np.concatenate([relation, relation + self.relations])
        order = np.argsort(code, kind="stable")
        self.code, self.end = code[order], np.concatenate([tail, head])[order]
        self.begin, self.kind = np.divmod(self.code, self.kinds)

    def inverse(self, kind: Longs) -> Longs:
        return (kind + self.relations) % self.kinds

    def leaving(self, entity: int) -> slice:
        """Return where the steps from an entity stand."""
        ends = np.searchsorted(self.begin, [entity, entity + 1])
        return slice(int(ends[0]), int(ends[1]))

    def along(self, entities: Longs, kind: int) -> tuple[Longs, Longs]:
        """Return (row, end) for every step of a kind from entities [n]."""
        code = entities * self.kinds + kind
        row, place = joined(code, self.code)
        return row, self.end[place]


def joined(left: Longs, ordered: Longs) -> tuple[Longs, Longs]:
    """Return all (i, j) with left[i] == ordered[j]; ``ordered`` is ascending."""
    begin = np.searchsorted(ordered, left, "left")
    size = np.searchsorted(ordered, left, "right") - begin
    row, place = counted_out(size)
    return row, begin[row] + place


def paths_between(steps: Steps, head: int, tail: int) -> list[tuple[Longs, Longs]]:
    """Return (kinds [n, L], entities [n, L + 1]) of all simple paths of length L = 1, 2, 3."""
    if head == tail:
        return []
    first, last = steps.leaving(head), steps.leaving(tail)
    s1, m = steps.kind[first], steps.end[first]
    s3, n = steps.inverse(steps.kind[last]), steps.end[last]
    direct = s1[m == tail]
    found = [_path(head, tail, [direct], [])]
    s1, m, s3, n = s1[m != tail], m[m != tail], s3[n != head], n[n != head]
    to_m, to_n = np.argsort(m, kind="stable"), np.argsort(n, kind="stable")
    s1, m, s3, n = s1[to_m], m[to_m], s3[to_n], n[to_n]
    one, two = joined(m, n)
    found.append(_path(head, tail, [s1[one], s3[two]], [m[one]]))

    near_head, near_tail = np.zeros((2, steps.entities), dtype=np.int64)
    np.add.at(near_head, m, 1)
    np.add.at(near_tail, n, 1)
    paths = near_head[steps.begin] * near_tail[steps.end]  # through each step, as the middle one
    middle = np.flatnonzero(paths)
    if paths.sum() > MOST_PATHS:
        drawn = np.random.default_rng(0).permutation(middle)
        middle = drawn[np.cumsum(paths[drawn]) <= MOST_PATHS]
    row, one = joined(steps.begin[middle], m)
    middle = middle[row]
    row, three = joined(steps.end[middle], n)
    one, middle = one[row], middle[row]
    kinds = [s1[one], steps.kind[middle], s3[three]]
    found.append(_path(head, tail, kinds, [m[one], n[three]]))
    return found


def _path(head: int, tail: int, kinds: list[Longs], inner: list[Longs]) -> tuple[Longs, Longs]:
    ends = np.full(len(kinds[0]), head), np.full(len(kinds[0]), tail)
    return np.stack(kinds, axis=1), np.stack([ends[0], *inner, ends[1]], axis=1)


def path_kinds(
    graph: KnowledgeGraph,
    head: int,
    relation: int,
    tail: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[PathKind]:
    """Return the kinds of paths from head to tail that support the relation, the best first.

    The triple itself is no path, and does not count for the support of one. ``progress`` receives
    (kinds counted, kinds in all).
    """
    steps = Steps(graph)
    known = graph.train[graph.train[:, 1] == relation].astype(np.int64)
    holds = np.unique(known[:, 0] * steps.entities + known[:, 2])
    found = _commonest(paths_between(steps, head, tail), (relation,))
    kinds: list[PathKind] = []
    for place, (sequence, count, example) in enumerate(found, 1):
        every, followed, pairs = _pairs(steps, sequence)
        pairs = pairs[pairs != head * steps.entities + tail]
        if support := int(np.isin(pairs, holds).sum()):
            figures = len(pairs), support, followed, every
            kinds.append(PathKind(sequence, count, example, *figures))
        if progress is not None:
            progress(place, len(found))
    return sorted(kinds, key=lambda kind: -kind.worth)


def _commonest(
    paths: list[tuple[Longs, Longs]], trivial: tuple[int, ...]
) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Return sequences of relations, their counts and examples: short ones first, then common ones.

    The relation of the triple alone is trivial.
    """
    found: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    for sequences, entities in paths:
        distinct, example, count = np.unique(
            sequences, axis=0, return_index=True, return_counts=True
        )
        for i in np.argsort(-count, kind="stable")[: MOST_KINDS - len(found)].tolist():
            sequence = tuple(distinct[i].tolist())
            if sequence != trivial:
                found.append((sequence, int(count[i]), tuple(entities[example[i]].tolist())))
    return found


def _pairs(steps: Steps, sequence: tuple[int, ...]) -> tuple[int, int, Longs]:
    """Return how many entities a sequence may start from, how many were followed, and the pairs.

    A pair (x, y) that a simple path of this sequence connects is x·|E| + y.
    """
    every = np.unique(steps.begin[steps.kind == sequence[0]])
    starts = np.random.default_rng(0).permutation(every)[:STARTS]
    while (pairs := _ends(steps, starts, sequence)) is None:
        starts = starts[: len(starts) // 2]
    return len(every), len(starts), pairs


def _ends(steps: Steps, starts: Longs, sequence: tuple[int, ...]) -> Longs | None:
    """Return the pairs that simple paths from these starts connect; None: too many paths."""
    nodes: list[Longs] = [starts]
    for kind in sequence:
        row, end = steps.along(nodes[-1], kind)
        if len(row) > MOST_ROWS and len(starts) > 1:
            return None
        nodes = [*(node[row] for node in nodes), end]
        fresh = np.all([end != node for node in nodes[:-1]], axis=0)
        nodes = [node[fresh] for node in nodes]
    return np.unique(nodes[0] * steps.entities + nodes[-1])
