"""How many bytes ranks send to each other for a training triple, by formula.

A rank is one of P, and each entity is as likely on any: a candidate is on another rank with chance
(P − 1)/P, and c candidates are on (P − 1)·(1 − (1 − 1/P)ᶜ) other ranks on average.
"""

from dataclasses import dataclass

FLOAT, INT, LONG, DOUBLE = 4, 4, 8, 8
# Beside a query go its relation and its number of candidates; the latter alone where compiled.
QUERY_INTS, COMPILED_INTS, PAIR_INTS = 2, 1, 1
FIGURES = 5  # of a step: loss, teaching triples, squares of gradients; two wishes


@dataclass(frozen=True)
class Training:
    """What the traffic of a training depends on."""

    ranks: int
    width: int  # numbers of a query
    batch: int
    relation_numbers: int  # of all tables that ranks have in common
    negatives: int = 1
    n1: int = 0  # no cache: 0
    n2: int = 0
    keys: float = 2.0  # different queries that are refreshed, for each triple of a batch
    strata: int = 0
    tail: int = 0  # a softmax: its tail, and n1 is its head
    compiled: bool = False  # whether ids and queries, figures and gradients share messages

    @property
    def far(self) -> float:
        return (self.ranks - 1) / self.ranks

    def hosts(self, candidates: int) -> float:
        return (self.ranks - 1) * (1 - (1 - 1 / self.ranks) ** candidates)

    def meeting(
        self, queries: float, candidates: int, hosts: float, back: bool, shared: int = 0
    ) -> dict[str, float]:
        """Return the bytes of queries that meet candidates; with ``back``, gradients return."""
        ints = COMPILED_INTS if self.compiled else QUERY_INTS
        ids = queries * (hosts * ints + candidates * self.far * PAIR_INTS) * INT
        vectors = queries * hosts * self.width * FLOAT
        scores = queries * (candidates + shared) * self.far * FLOAT
        sent = {"ids": ids, "queries": vectors, "scores": scores}
        if self.compiled:
            sent = {"queries": ids + vectors, "scores": scores}
        return sent | ({"queries, gradients": vectors, "scores, gradients": scores} if back else {})

    def parts(self) -> list[dict[str, float]]:
        everyone = self.ranks - 1
        once = self.ranks / self.batch  # what each rank sends once in a step
        ring = 2 * self.far * once
        figures = ring * FIGURES * DOUBLE
        meetings = 1
        if self.tail:
            met = [self.meeting(2, 1 + self.n1, everyone, True, self.tail)]
            figures += ring * self.batch * FLOAT  # the losses of all triples
        else:
            negative = 1 + self.negatives
            met = [self.meeting(1, negative, self.hosts(negative), True)]
        if self.n1 and not self.tail:
            met.append(self._refresh())
            meetings += 1 if self.compiled and not self.strata else 2
        counts = meetings * once * everyone * 2 * LONG
        common = ring * self.relation_numbers * FLOAT
        if self.compiled:
            together = common + ring * FIGURES * FLOAT
            return [*met, {"gradients of relations": together, "counts": counts}]
        return [*met, {"gradients of relations": common, "figures": figures, "counts": counts}]

    def _refresh(self) -> dict[str, float]:
        if not self.strata:
            candidates = self.n1 + self.n2
            return self.meeting(self.keys, candidates, self.hosts(candidates), False)
        candidates = self.n1 // self.strata + self.n2
        return self.meeting(self.keys, candidates, self.far, False)  # all on one rank

    def bytes_of_triple(self) -> dict[str, float]:
        """Return the bytes that all ranks send for a triple, by the kinds of ``World.traffic``."""
        total: dict[str, float] = {}
        for part in self.parts():
            for kind, sent in part.items():
                total[kind] = total.get(kind, 0.0) + sent
        return total
