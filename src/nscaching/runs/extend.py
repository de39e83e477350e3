"""A run with more facts and entities, without a new training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nscaching.data.frames import read_columns
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side, distinct
from nscaching.data.load import FORMATS
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.rdf import RdfReader, is_rdf
from nscaching.data.readers.table import file_suffix, read_numbered
from nscaching.errors import UserError, counted, flag, user_path
from nscaching.evaluation.answers import known_answers
from nscaching.evaluation.new_vectors import fit_new
from nscaching.evaluation.ranking import Queries, rank
from nscaching.evaluation.ranks import Ranks, metrics
from nscaching.models import Model
from nscaching.probes import ProbeConfig

if TYPE_CHECKING:
    from nscaching.runs.run import Run

HELD_OUT = 0.2  # of the facts of each new entity, for the figures
Progress = Callable[[str, int, int], None]  # receives (what is done, steps done, steps in all)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NewFacts:
    """New facts by the ids of a larger graph; where each stands, for messages."""

    triples: Ids  # [n, 3]
    entities: list[str]  # the names of the new ones; their ids follow those of the known ones
    places: list[str]
    known: int  # entities known before

    def with_new(self) -> Mask:
        """Return which facts [n] name a new entity."""
        found: Mask = np.maximum(self.triples[:, 0], self.triples[:, 2]) >= self.known
        return found


def extend(
    run: Run,
    triples: Any,  # noqa: ANN401
    held_out: float = HELD_OUT,
    seed: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Return the run with more facts, and with vectors for the entities that are new in them.

    ``triples`` are a file of any format that ``train`` reads, or whatever
    ``KnowledgeGraph.from_triples`` takes; relations must be known. New vectors are fitted to their
    facts by the run's own loss; the vectors of known entities and of relations stay as they are.

    ``record["extended"]`` of the result says how well new entities are found: first a share
    ``held_out`` of each one's facts is kept from the fit and ranked, then all facts are fitted.
    ``save`` writes the result to a new folder.
    """
    if not 0 <= held_out < 1:
        raise UserError(f"{flag('held_out')} must be at least 0 and below 1, not {held_out}")
    given = _read(triples, run.graph)
    facts = _numbered(run.graph, given)
    _check_new(run.graph, facts)
    _check_linked(facts)
    graph = _larger(run, facts, given)
    names = len(facts.entities)
    between_known = int((~facts.with_new()).sum())
    report = {"facts": len(facts.triples), "new_entities": names, "between_known": between_known}
    model = run.model
    if names:
        kept = hold_out(facts, held_out, seed)

        def fit(rows: Mask, what: str) -> Model:
            report_step = progress and partial(progress, what)
            some = facts.triples[rows]
            return fit_new(run.model, run.config, run.graph, some, names, seed, report_step)

        if not kept.all():
            tried = fit(kept, "fitting to a part of the facts")
            report |= _figures(tried, graph, facts.triples[~kept], facts.known)
        model = fit(np.ones(len(kept), dtype=bool), "fitting to all facts")
    # Rankings of before had fewer candidates; the cache is by the facts of before.
    history = [record for record in run.history if "split" not in record]
    ranks = None
    if len(graph.test):
        ranks, record = _rank_test(run, model, graph)
        history.append(record)
    before = {k: v for k, v in run.record.items() if k != "data_fingerprint"}
    return replace(
        run,
        graph=graph,
        model=model,
        record={**before, "extended": report | {"from": run.name}},
        history=history,
        sampler_state={},
        path=None,
        test_ranks=ranks,
        probes=ProbeConfig(),
        scores=[],
        snapshots={},
    )


def _rank_test(
    run: Run, model: Model, graph: KnowledgeGraph
) -> tuple[dict[Side, Ranks], dict[str, Any]]:
    """Rank the test triples anew; return their ranks, and the record for the history."""
    began = time.perf_counter()
    ranks = rank(model, Queries(graph, graph.test, device=model.entity.device))
    found = metrics(np.concatenate([r.resolve("realistic") for r in ranks.values()]))
    place = {"epoch": run.best_epoch, "split": "test", "trained_seconds": run.train_seconds}
    return ranks, {**place, **found, "seconds": time.perf_counter() - began}


@dataclass(frozen=True)
class Given:
    """The rows of new facts as they were given, and what the file says of its names."""

    rows: list[list[Any]]
    places: list[str]  # where each stands, for messages
    labels: dict[str, str] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)


def _read(triples: Any, graph: KnowledgeGraph) -> Given:  # noqa: ANN401
    if isinstance(triples, str | Path):
        path = user_path(triples)
        return _read_rdf(path, graph) if is_rdf(path) else _read_table(path)
    columns = [c if isinstance(c, list) else c.tolist() for c in read_columns(triples)]
    if not columns[0]:
        raise UserError("triples: there are none")
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Given(rows, [f"triples: row {i} (counted from 0)" for i in range(len(rows))])


def _read_table(path: Path) -> Given:
    if file_suffix(path) not in FORMATS:
        known = ", ".join(FORMATS)
        raise UserError(f"{path}: new facts are read from {known} (or .gz), not {path.suffix!r}")
    numbered = read_numbered(path)
    if not numbered:
        raise UserError(f"{path}: the file holds no triples")
    return Given([row for _, row in numbered], [f"{path}:{number}" for number, _ in numbered])


def _read_rdf(path: Path, graph: KnowledgeGraph) -> Given:
    """Read an RDF file; its blank nodes are none of the graph's, whatever they are called."""
    reader = RdfReader(NameTable(), NameTable(), graph.source.literals)
    triples, known = reader.read(path), set(graph.entities)
    entities, relations = list(reader.entities), list(reader.relations)
    for place, name in enumerate(entities):
        while name.startswith("_:") and name in known:
            name += "+"
        entities[place] = name
    rows = [[entities[h], relations[r], entities[t]] for h, r, t in triples.tolist()]
    places = [f"{path}, triple {number}" for number in range(1, len(rows) + 1)]
    return Given(rows, places, reader.labels(), reader.prefixes.own)


def _numbered(graph: KnowledgeGraph, given: Given) -> NewFacts:
    """Number the entities that the graph lacks after those that it has; drop repeated facts."""
    known = len(graph.entities)
    new: dict[str, int] = {}
    found: dict[tuple[int, ...], str] = {}

    def entity(name: str | int) -> int:
        number = graph.known_entity(name)
        return new.setdefault(str(name), known + len(new)) if number is None else number

    for (head, relation, tail), place in zip(given.rows, given.places, strict=True):
        try:
            fact = entity(head), graph.relation_id(relation), entity(tail)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
        found.setdefault(fact, place)
    triples = np.array(list(found), dtype=np.int32).reshape(-1, 3)
    return NewFacts(triples, list(new), list(found.values()), known)


def _check_new(graph: KnowledgeGraph, facts: NewFacts) -> None:
    rows = np.flatnonzero(~facts.with_new())
    triples = facts.triples[rows]
    if not len(rows):
        return
    for row, triple, answers in zip(rows, triples, known_answers(graph, 2, triples.T), strict=True):
        if split := answers.get(int(triple[2])):
            h, r, t = triple.tolist()
            names = graph.label(h), graph.relation_label(r), graph.label(t)
            raise UserError(f"{facts.places[row]}: {names!r} is known already, from {split}")


def _check_linked(facts: NewFacts) -> None:
    """Refuse a new entity that no chain of new facts links to a known one."""
    ends = facts.triples[:, [0, 2]]
    linked = np.arange(facts.known + len(facts.entities)) < facts.known
    before = -1
    while before != (before := int(linked.sum())):
        linked[ends[linked[ends].any(1)]] = True
    for row, fact in enumerate(ends.tolist()):
        if not linked[fact].all():
            name = facts.entities[next(end for end in fact if not linked[end]) - facts.known]
            reason = "no new fact links it to a known entity, not even through other new ones"
            raise UserError(f"{facts.places[row]}: {name!r} is a new entity, and {reason}")


def _larger(run: Run, facts: NewFacts, given: Given) -> KnowledgeGraph:
    graph, count = run.graph, len(facts.entities)
    added = f"{counted(len(facts.triples), 'fact')} and {counted(count, 'entity', 'entities')}"
    what = f"{added} were added to run {run.name}"
    how = "the new vectors were fitted without a new training" if count else "no vector changed"
    return replace(
        graph,
        entities=[*graph.entities, *facts.entities],
        train=distinct(np.concatenate([graph.train, facts.triples])),
        labels={n: given.labels[n] for n in facts.entities if n in given.labels} | graph.labels,
        prefixes=given.prefixes | graph.prefixes,
        notes=[*graph.notes, f"{what}: {how}; the command does not repeat that"],
    )


def hold_out(facts: NewFacts, share: float, seed: int) -> Mask:
    """Return which facts [n] to keep for a first fit: all but a share of each new entity's.

    Held out are facts between a new and a known entity, never the last such fact of the new one.
    """
    kept = np.ones(len(facts.triples), dtype=bool)
    ends = facts.triples[:, [0, 2]]
    linking = np.flatnonzero((ends >= facts.known).sum(1) == 1)
    new = ends.max(1)
    left = np.bincount(new[linking], minlength=facts.known + len(facts.entities))
    wanted = np.minimum(np.ceil(share * left), left - 1)
    for row in np.random.default_rng(seed).permutation(linking).tolist():
        if wanted[new[row]] > 0:
            wanted[new[row]] -= 1
            kept[row] = False
    return kept


def _figures(model: Model, graph: KnowledgeGraph, held_out: Ids, known: int) -> dict[str, Any]:
    """Rank held-out facts by a model that was fitted without them."""
    ranks = rank(model, Queries(graph, held_out, True, model.entity.device))
    sides = np.stack([found.resolve("realistic") for found in ranks.values()])  # head, tail [2, n]
    tail_is_new = held_out[:, 2] >= known
    of_new = np.where(tail_is_new, sides[1], sides[0])
    of_known = np.where(tail_is_new, sides[0], sides[1])
    return {
        "held_out": len(held_out),
        **metrics(np.concatenate([of_new, of_known])),
        "new_entity": metrics(of_new),
        "known_entity": metrics(of_known),
    }
