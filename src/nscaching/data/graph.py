"""KnowledgeGraph: ids, vocabularies, splits, the keys of the negative cache, the filter index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nscaching.data.checks import SPLITS as SPLITS
from nscaching.data.checks import CheckedSplits, check_splits
from nscaching.data.frames import read_columns
from nscaching.data.index import AnswerIndex, Ids, Side, answer_index, head_probability
from nscaching.data.mapped_names import MappedNames
from nscaching.data.names import NameLookup, refuse_repeats
from nscaching.data.prefixes import Prefixes
from nscaching.errors import counted, unknown

if TYPE_CHECKING:
    from nscaching.audit import Audit

MAPPING_CLASSES = ("1-1", "1-N", "N-1", "N-N", "unseen")


@dataclass(frozen=True)
class Source:
    """Where a graph came from: the arguments to load it again."""

    data: str = ""
    labels: str = ""
    split_seed: int = 0
    literals: bool = False


@dataclass(frozen=True)
class Labelled:
    """Triples with a truth value, for classification."""

    triples: Ids  # [n, 3]
    truth: npt.NDArray[np.bool_]  # [n]; all false: negatives alone
    origin: str  # where the false ones come from
    left_out: int = 0  # negatives that are known triples


@dataclass
class KnowledgeGraph:
    """A graph of (head, relation, tail) triples in three splits, with its indices.

    Arrays are int32 with columns (head, relation, tail). ``notes`` holds what loading found:
    dropped duplicates, unseen entities and the like.
    """

    entities: Sequence[str]  # a list, or mapped names
    relations: list[str]
    train: Ids
    valid: Ids
    test: Ids
    name: str = "graph"
    source: Source = Source()
    labels: dict[str, str] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)  # of IRIs, as the data declare them
    labelled: dict[str, Labelled] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    """Split or file → how many repeated triples loading dropped from it."""

    @classmethod
    def load(
        cls,
        where: str | Path,
        labels: str | Path = "",
        split_seed: int = 0,
        literals: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
        memory: str = "",
    ) -> KnowledgeGraph:
        """Load a known data set by name, a folder with train/valid/test, or one file of triples.

        ``labels`` names a file of (entity, label) lines; without it, an ``entity_labels.tsv``
        beside the data is used. A single file is split 90/5/5 by ``split_seed``. With ``literals``
        the literals of RDF files are entities too. ``progress`` is called with (the task, bytes
        done, bytes in all). Tables that take more than ``memory``, such as "4GiB", to read are
        read through DuckDB, and their arrays are kept for the next call.
        """
        from nscaching.data.load import load_graph

        return load_graph(where, labels, split_seed, literals, progress, memory)

    @classmethod
    def from_triples(
        cls,
        triples: Any,  # noqa: ANN401
        *,
        valid: Any = None,  # noqa: ANN401
        test: Any = None,  # noqa: ANN401
        split_seed: int | None = 0,
        columns: Sequence[Any] | None = None,
        entities: Sequence[Any] | None = None,
        relations: Sequence[Any] | None = None,
        labels: Mapping[Any, str] | None = None,
        name: str = "graph",
    ) -> KnowledgeGraph:
        """Build a graph from rows (head, relation, tail), an array [n, 3] or a data frame.

        A data frame is of pandas, polars or pyarrow, or a dict of columns: the columns head,
        relation and tail, or three in this order, or those that ``columns`` names. Names are texts
        or whole numbers; with ``entities`` and ``relations``, lists of all names, whole numbers are
        places in the lists. Without ``valid`` and ``test`` the triples are split 90/5/5 by
        ``split_seed``; None: all of them are for training. ``labels`` are readable names by name.
        """
        from nscaching.data.load import graph_of_triples

        held_out = {"valid": valid, "test": test}
        given = {split: some for split, some in held_out.items() if some is not None}
        given = {"train": triples, **given}
        readable = {str(key): str(label) for key, label in (labels or {}).items()}
        names = entities, relations
        return graph_of_triples(given, split_seed, columns, names, labels=readable, name=name)

    @classmethod
    def from_arrays(
        cls,
        entities: Sequence[str],
        relations: list[str],
        splits: dict[str, Ids],
        checked: CheckedSplits | None = None,
        **rest: object,
    ) -> KnowledgeGraph:
        """Build a graph from id arrays [n, 3]; repeats in a split are dropped and noted.

        ``checked`` is what an earlier check of the splits has found.
        """
        if checked is None:
            refuse_repeats(entities, relations)
            checked = check_splits(entities, relations, splits)
        graph = cls(entities, relations, **checked.splits, **rest)  # type: ignore[arg-type]
        graph.notes = [*graph.notes, *checked.notes]
        graph.repeats = graph.repeats | checked.repeats
        return graph

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(self.split(s)):,} {s}" for s in SPLITS)
        entities = counted(len(self.entities), "entity", "entities")
        names = f"{entities}, {counted(len(self.relations), 'relation')}"
        example = ""
        if len(self.train):
            head, relation, tail = self.train[0]
            shown = self.label(head), self.relation_label(relation), self.label(tail)
            example = f"; such as {shown!r}"
        return f"KnowledgeGraph({self.name}: {names}, {sizes}{example})"

    def split(self, name: str) -> Ids:
        """Return the triples of a split by name."""
        if name not in SPLITS:
            raise unknown("split", name, SPLITS)
        triples: Ids = getattr(self, name)
        return triples

    # Indices, each built once on first use.

    @cached_property
    def train_index(self) -> dict[Side, AnswerIndex]:
        """Known answers in the training split; their keys are the keys of the negative cache."""
        return answer_index(self.train, len(self.relations))

    @cached_property
    def filter_index(self) -> dict[Side, AnswerIndex]:
        """Known answers in all splits, for filtered ranking."""
        return answer_index(np.concatenate([self.split(s) for s in SPLITS]), len(self.relations))

    @cached_property
    def train_keys(self) -> dict[Side, Ids]:
        """For each training triple, its key: (r, t) on the head side, (h, r) on the tail side."""
        head, relation, tail = self.train.T
        return {
            side: index.keys(side.query(head, tail)[0], relation)
            for side, index in self.train_index.items()
        }

    def holds(self, triples: Ids) -> npt.NDArray[np.bool_]:
        """Say of each triple [n, 3] whether one of the splits has it."""
        head, relation, tail = triples.T
        return self.filter_index[Side.TAIL].holds(head, relation, tail, len(self.entities))

    def index_bytes(self) -> int:
        """Return the bytes of the indices that were built so far; builds none."""
        built = self.__dict__  # where cached properties keep their values
        arrays = list(built.get("train_keys", {}).values())
        for name in ("train_index", "filter_index"):
            for index in built.get(name, {}).values():
                arrays += [index.codes, index.offsets, index.answers]
        return sum(array.nbytes for array in arrays)

    def audit(self, progress: Callable[[str, int, int], None] | None = None) -> Audit:
        """Look for what spoils a training or its figures: leaks, repeats, unseen names and more.

        ``progress`` is called with (the task, units done, units in all).
        """
        from nscaching.audit import audit

        return audit(self, progress)

    def hide_test(self) -> KnowledgeGraph:
        """Return this graph with an empty test split; filtered ranking still knows its triples."""
        hidden = replace(self, test=self.test[:0])
        hidden.filter_index = self.filter_index
        return hidden

    def with_inverses(self) -> KnowledgeGraph:
        """Return the training triples and their inverses (t, r + |R|, h), without other splits."""
        head, relation, tail = self.train.T
        inverse = np.stack([tail, relation + len(self.relations), head], axis=1)
        own, mark = set(self.relations), "⁻¹"
        while any(name + mark in own for name in own):
            mark += "⁻¹"
        names = [*self.relations, *(name + mark for name in self.relations)]
        none = self.train[:0]
        return replace(
            self,
            relations=names,
            train=np.concatenate([self.train, inverse]),
            valid=none,
            test=none,
        )

    @cached_property
    def cardinality(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(tph, hpt) per relation: mean tails per head and mean heads per tail in training."""
        tails, heads = self.train_index[Side.TAIL], self.train_index[Side.HEAD]
        return tails.mean_answers(), heads.mean_answers()

    @cached_property
    def head_probability(self) -> npt.NDArray[np.float64]:
        """Bernoulli sampling's chance per relation to replace the head: tph / (tph + hpt)."""
        return head_probability(self.train_index)

    @cached_property
    def mapping_classes(self) -> list[str]:
        """Mapping class of each relation: "N" is 1.5 or more on average in training."""
        tph, hpt = self.cardinality
        return [
            MAPPING_CLASSES[2 * int(h >= 1.5) + int(t >= 1.5)] if t else "unseen"
            for t, h in zip(tph, hpt, strict=True)
        ]

    @cached_property
    def fingerprint(self) -> str:
        """Digest of names and triples: equal for equal data only."""
        digest = hashlib.sha256()
        sizes = [len(self.entities), len(self.relations), *(len(self.split(s)) for s in SPLITS)]
        digest.update(repr(sizes).encode())
        for names in (self.entities, self.relations):
            if isinstance(names, MappedNames):
                digest.update(names.text.data)
            else:
                digest.update("\0".join(names).encode() + b"\0")
        for split in SPLITS:
            digest.update(np.ascontiguousarray(self.split(split)).reshape(-1).data)
        return digest.hexdigest()[:16]

    # Names.

    def label(self, entity: int) -> str:
        """Return the readable name of an entity: its label, or else the short form of an IRI."""
        return self._entity_lookup.shown(entity)

    def relation_label(self, relation: int) -> str:
        """Return the readable name of a relation: its label, or else the short form of an IRI."""
        return self._relation_lookup.shown(relation)

    def short(self, name: str) -> str:
        """Return the short form of an IRI, such as ``brick:Sensor``, or the name as it is."""
        return self._entity_lookup.short(name)

    def entity_id(self, name: str | int) -> int:
        """Find an entity by name, label, short form, local name or id.

        A text in another case serves, if it fits one entity. A UserError names what is near.
        """
        return self._entity_lookup.id_of(name)

    def relation_id(self, name: str | int) -> int:
        """Find a relation, as ``entity_id`` finds an entity."""
        return self._relation_lookup.id_of(name)

    def known_entity(self, name: str | int) -> int | None:
        """Find an entity by exact name, label or short form; None: there is no such entity."""
        return self._entity_lookup.exact(name)

    def known_relation(self, name: str | int) -> int | None:
        """Find a relation, as ``known_entity`` finds an entity."""
        return self._relation_lookup.exact(name)

    def triples(self, split: str) -> list[tuple[str, str, str]]:
        """Return the triples of a split by name, as ``from_triples`` takes them."""
        e, r = self.entities, self.relations
        return [(e[head], r[relation], e[tail]) for head, relation, tail in self.split(split)]

    def ids(self, triples: Any) -> Ids:  # noqa: ANN401
        """Return the ids [n, 3] of triples by name, given as ``from_triples`` takes them."""
        columns = enumerate(read_columns(triples))
        return np.stack([self.column_ids(place, column) for place, column in columns], axis=1)

    def column_ids(self, place: int, names: Iterable[str | int]) -> Ids:
        """Return the ids [n] of names in a column of triples: entities, or relations at place 1."""
        return (self._relation_lookup if place == 1 else self._entity_lookup).ids_of(names)

    @cached_property
    def _entity_lookup(self) -> NameLookup:
        own = Prefixes(self.prefixes)
        return NameLookup("entity", "entities", self.entities, self.labels, own)

    @cached_property
    def _relation_lookup(self) -> NameLookup:
        own = Prefixes(self.prefixes)
        return NameLookup("relation", "relations", self.relations, self.labels, own)
