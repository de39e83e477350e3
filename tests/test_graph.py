"""The indices of a graph against slow twins made of dictionaries and sets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nscaching import KnowledgeGraph
from nscaching.data import sorting
from nscaching.data.graph import SPLITS, Source
from nscaching.data.index import Side, answer_index, distinct, head_probability
from nscaching.errors import UserError

ENTITIES, RELATIONS = 5, 3
entity = st.integers(0, ENTITIES - 1)
triple = st.tuples(entity, st.integers(0, RELATIONS - 1), entity)
# Repeats are likely, and valid and test are often empty.
triples = st.lists(triple, min_size=1, max_size=25)
few_triples = st.lists(triple, max_size=6)


def build(train, valid=(), test=(), entities=ENTITIES, relations=RELATIONS, repeats=False):
    splits = {
        name: np.array(list(part), dtype=np.int32).reshape(-1, 3)
        for name, part in zip(SPLITS, (train, valid, test), strict=True)
    }
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    if repeats:
        return KnowledgeGraph(*names, **splits)
    return KnowledgeGraph.from_arrays(*names, splits)


def answers(parts, side):
    """Return {(anchor, relation): answers}: the slow twin of an index."""
    found = defaultdict(set)
    for part in parts:
        for head, relation, tail in part:
            anchor, answer = (tail, head) if side is Side.HEAD else (head, tail)
            found[anchor, relation].add(answer)
    return found


def queries():
    """Return every query there is: anchors [n] and relations [n]."""
    every = [(a, r) for a in range(ENTITIES) for r in range(RELATIONS)]
    return np.array(every, dtype=np.int32).T


@given(triples, few_triples, few_triples, st.booleans())
def test_both_indices_know_what_the_sets_know(train, valid, test, repeats):
    graph = build(train, valid, test, repeats=repeats)
    anchor, relation = queries()
    for index, parts in ((graph.train_index, [train]), (graph.filter_index, [train, valid, test])):
        for side in Side:
            twin = answers(parts, side)
            assert len(index[side]) == len(twin)
            assert (np.diff(index[side].codes) > 0).all()
            row, known = index[side].known(anchor, relation)
            assert (np.diff(row) >= 0).all()
            found = defaultdict(list)
            for r, e in zip(row.tolist(), known.tolist(), strict=True):
                found[int(anchor[r]), int(relation[r])].append(e)
            assert found == {query: sorted(twin[query]) for query in twin}
            keys = index[side].keys(anchor, relation)
            asked = list(zip(anchor.tolist(), relation.tolist(), strict=True))
            assert [key >= 0 for key in keys] == [query in twin for query in asked]
            assert sorted(keys[keys >= 0]) == list(range(len(twin)))
            pairs = index[side].pair_codes(ENTITIES)
            assert pairs.tolist() == sorted(
                key * ENTITIES + e
                for key, query in zip(keys.tolist(), asked, strict=True)
                for e in twin.get(query, ())
            )


@given(triples, st.booleans())
def test_every_training_triple_has_the_key_of_its_query(train, repeats):
    graph = build(train, repeats=repeats)
    rows = graph.train.tolist()
    assert rows == (list(map(list, train)) if repeats else list(map(list, dict.fromkeys(train))))
    for side in Side:
        keys, index = graph.train_keys[side], graph.train_index[side]
        for (head, relation, tail), key in zip(rows, keys.tolist(), strict=True):
            anchor, answer = side.query(head, tail)
            assert index.codes[key] == anchor * RELATIONS + relation
            assert answer in index.answers[index.offsets[key] : index.offsets[key + 1]]


@pytest.mark.parametrize(("few", "bits"), [(20, 63), (1 << 20, 13), (20, 12)])
def test_an_index_made_in_parts_is_the_same(monkeypatch, few, bits):
    random = np.random.default_rng(few + bits)
    triples = random.integers((60, 5, 70), size=(500, 3)).astype(np.int32) // (1, 1, 2)
    triples = np.concatenate([triples, triples[::3]]).astype(np.int32)
    whole, once = answer_index(triples, 5), distinct(triples)
    asked = random.integers((70, 5), size=(200, 2)).astype(np.int32).T
    means, keys = head_probability(whole), {side: whole[side].keys(*asked) for side in Side}
    parts = []
    monkeypatch.setattr(sorting, "cores", lambda: 3)
    monkeypatch.setattr(sorting, "SAMPLE", 50)
    for name, value in (("FEW", few), ("BITS", bits)):
        monkeypatch.setattr(sorting, name, value)
    monkeypatch.setattr("nscaching.data.index.slices", lambda n: sorting.slices(n, few))
    assert sorting.for_parts(tuple(triples.T), parts.append)
    assert len(parts) > 1
    assert np.array_equal(distinct(triples), once)
    for side, index in answer_index(triples, 5).items():
        for array in ("codes", "offsets", "answers"):
            assert np.array_equal(getattr(index, array), getattr(whole[side], array))
        assert np.array_equal(index.keys(*asked), keys[side])
    assert np.array_equal(head_probability(whole), means)


def test_a_query_of_a_graph_without_triples_has_no_answer():
    graph = build([])
    for side in Side:
        anchor, relation = queries()
        assert (graph.filter_index[side].keys(anchor, relation) == -1).all()
        row, known = graph.filter_index[side].known(anchor, relation)
        assert len(row) == len(known) == 0


@given(triples, st.booleans())
def test_cardinality_and_mapping_classes(train, repeats):
    graph = build(train, repeats=repeats)
    tph, hpt = graph.cardinality
    for r in range(RELATIONS):
        tails, heads = defaultdict(set), defaultdict(set)
        for head, relation, tail in train:
            if relation == r:
                tails[head].add(tail)
                heads[tail].add(head)
        n = sum(map(len, tails.values()))
        assert tph[r] == (n / len(tails) if tails else 0)
        assert hpt[r] == (n / len(heads) if heads else 0)
        sides = ("N" if hpt[r] >= 1.5 else "1"), ("N" if tph[r] >= 1.5 else "1")
        assert graph.mapping_classes[r] == ("-".join(sides) if n else "unseen")
        total = tph[r] + hpt[r]
        assert graph.head_probability[r] == (tph[r] / total if total else 0.5)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ([(0, 0, 1), (2, 0, 3)], "1-1"),
        ([(0, 0, 1), (0, 0, 2), (3, 0, 4)], "1-N"),  # 3 tails of 2 heads: 1.5 is many
        ([(1, 0, 0), (2, 0, 0), (4, 0, 3)], "N-1"),
        ([(0, 0, 1), (0, 0, 2), (3, 0, 1), (3, 0, 2)], "N-N"),
        ([(0, 0, 1), (0, 0, 2), (3, 0, 4), (5, 0, 6)], "1-1"),  # 4 tails of 3 heads: one
    ],
)
def test_mapping_classes_by_hand(train, expected):
    assert build(train, entities=7, relations=1).mapping_classes == [expected]


def test_arrays_are_int32_and_keys_do_not_overflow():
    big = 100_000
    graph = build([(big - 1, 49_999, big - 1), (0, 0, 0)], entities=big, relations=50_000)
    assert all(graph.split(split).dtype == np.int32 for split in SPLITS)
    index = graph.train_index[Side.TAIL]
    assert index.codes.tolist() == [0, (big - 1) * 50_000 + 49_999]
    last = np.array([big - 1], dtype=np.int32)
    assert index.keys(last, np.array([49_999], dtype=np.int32)).tolist() == [1]
    assert graph.train_keys[Side.HEAD].tolist() == [1, 0]


@given(st.lists(triple, max_size=20))
def test_distinct_keeps_the_first_of_each(rows):
    array = np.array(rows, dtype=np.int32).reshape(-1, 3)
    assert list(map(tuple, distinct(array).tolist())) == list(dict.fromkeys(rows))


@given(triples, few_triples, few_triples)
def test_building_drops_and_counts(train, valid, test):
    graph = build(train, valid, test)
    for name, part in zip(SPLITS, (train, valid, test), strict=True):
        assert list(map(tuple, graph.split(name).tolist())) == list(dict.fromkeys(part))
        dropped = len(part) - len(set(part))
        note = f"{dropped} duplicate triple{'s' * (dropped > 1)} dropped from {name}"
        assert (note in graph.notes) == bool(dropped)
    seen, asked = ({e for h, _, t in part for e in (h, t)} for part in (train, [*valid, *test]))
    kinds = ("entity of valid/test is", "entities of valid/test are")
    new = [n for n in graph.notes if any(f"{kind} not in train" in n for kind in kinds)]
    assert [note.split()[0] for note in new] == ([str(len(asked - seen))] if asked - seen else [])
    assert len(graph.notes) == len(set(graph.notes))


@pytest.mark.parametrize("wrong", [(0, 0, 5), (-1, 0, 0), (0, 3, 0), (0, -1, 0), (2**32, 0, 0)])
@pytest.mark.parametrize("split", SPLITS)
def test_ids_out_of_range_are_refused(wrong, split):
    splits = {"train": np.array([(0, 0, 1)]), split: np.array([(0, 0, 1), wrong])}
    with pytest.raises(UserError, match=f"the {split} split holds ids that are out of range"):
        KnowledgeGraph.from_arrays(list("abcde"), list("rst"), splits)


@pytest.mark.parametrize("kind", ["entities", "relations"])
def test_a_name_given_twice_is_refused(kind):
    names = {"entities": ["a", "b"], "relations": ["r", "s"]}
    names[kind] = ["x", "y", "x"]
    with pytest.raises(UserError, match=f"^two {kind} have the same name: 'x'$"):
        KnowledgeGraph.from_arrays(**names, splits={"train": [(0, 0, 1)]})


def test_index_bytes_counts_what_was_built():
    graph = build([(0, 0, 1), (1, 0, 2)], [(2, 1, 3)])
    assert graph.index_bytes() == 0
    indices = [*graph.train_index.values(), *graph.filter_index.values()]
    arrays = [a for index in indices for a in (index.codes, index.offsets, index.answers)]
    assert graph.index_bytes() == sum(array.nbytes for array in arrays)
    arrays += graph.train_keys.values()
    assert graph.index_bytes() == sum(array.nbytes for array in arrays)


def test_hidden_test_triples_stay_known_to_the_filter():
    graph = build([(0, 0, 1)], [(1, 0, 2)], [(2, 0, 3)])
    hidden = graph.hide_test()
    assert hidden.test.shape == (0, 3)
    assert hidden.filter_index is graph.filter_index
    assert (len(graph.test), len(graph.filter_index[Side.TAIL])) == (1, 3)
    assert (hidden.train == graph.train).all()


def test_a_split_that_is_not_given_is_empty():
    graph = KnowledgeGraph.from_arrays(["a", "b"], ["r"], {"train": [(0, 0, 1)]})
    assert graph.valid.shape == graph.test.shape == (0, 3)
    assert repr(graph) == (
        "KnowledgeGraph(graph: 2 entities, 1 relation, 1 train, 0 valid, 0 test; "
        "such as ('a', 'r', 'b'))"
    )
    with pytest.raises(UserError, match="unknown split 'dev'; known: train, valid, test"):
        graph.split("dev")


@given(triples, few_triples, triples, few_triples)
def test_the_fingerprint_tells_data_apart(train, valid, other_train, other_valid):
    graph = build(train, valid)
    assert build(list(train), list(valid)).fingerprint == graph.fingerprint
    assert replace(graph, name="other", source=Source("x")).fingerprint == graph.fingerprint
    assert replace(graph, relations=["q", *graph.relations[1:]]).fingerprint != graph.fingerprint
    other = build(other_train, other_valid)
    same = all(graph.split(split).tolist() == other.split(split).tolist() for split in SPLITS)
    assume(not same)
    assert other.fingerprint != graph.fingerprint


def test_the_fingerprint_knows_where_a_split_ends():
    rows = [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    prints = {build(rows[:i], rows[i:j], rows[j:]).fingerprint for i in (1, 2) for j in (2, 3)}
    assert len(prints) == 4
    assert replace(build(rows), entities=["e0\0e1", *"abc", "d"]).fingerprint not in prints


# Names.


@pytest.fixture
def people():
    names = ["/m/1", "/m/2", "/m/3", "Émile", "dup", "[bold]x[/bold]"]
    labels = {"/m/1": "Ada Lovelace", "/m/2": "Twin", "/m/3": "twin", "dup": "/m/1"}
    splits = {"train": np.array([(0, 0, 1), (2, 1, 3), (4, 2, 5)])}
    relations = ["knows", "Likes", "likes"]
    return KnowledgeGraph.from_arrays(names, relations, splits, labels=labels)


def test_an_entity_is_found_by_name_then_by_label(people):
    assert [people.label(i) for i in (0, 3, 5)] == ["Ada Lovelace", "Émile", "[bold]x[/bold]"]
    assert people.entity_id("Ada Lovelace") == people.entity_id("ada LOVELACE") == 0
    assert people.entity_id("/m/1") == 0  # its own name goes before another's label
    assert people.entity_id("ÉMILE") == 3
    assert people.entity_id("[bold]x[/bold]") == 5


def test_a_label_of_several_entities_is_a_question(people):
    assert (people.entity_id("Twin"), people.entity_id("twin")) == (1, 2)
    with pytest.raises(UserError, match=r"2 entities are labelled 'TWIN'; .* /m/2, /m/3"):
        people.entity_id("TWIN")


def test_a_relation_is_found_exactly_then_without_case(people):
    assert [people.relation_id(name) for name in ("Likes", "likes", "KNOWS")] == [1, 2, 0]
    with pytest.raises(UserError, match=r"2 relations are labelled 'LIKES'; .* Likes, likes"):
        people.relation_id("LIKES")
    labelled = replace(people, labels={"knows": "is a friend of"})
    assert [labelled.relation_id(name) for name in ("Is A Friend Of", "KNOWS")] == [0, 0]


def test_unknown_names_come_with_the_nearest(people):
    with pytest.raises(
        UserError, match=r"unknown entity 'Ada'; known: Ada Lovelace, Twin, twin, Émile, /m/1, "
    ):
        people.entity_id("Ada")
    with pytest.raises(UserError, match="unknown relation 'know'; known: knows, Likes, likes"):
        people.relation_id("know")
    names = [f"entity number {i}" for i in range(40)]
    many = replace(people, entities=names, labels={"entity number 7": "Königsberg"})
    with pytest.raises(UserError, match=r"unknown entity 'Konigsberg'; nearest: Königsberg$"):
        many.entity_id("Konigsberg")
    with pytest.raises(UserError, match=r"nearest: .*entity number 7"):
        many.entity_id("entity numbr 7")
    with pytest.raises(UserError, match="unknown entity 'zzz'; none of the 41 known is close"):
        many.entity_id("zzz")
