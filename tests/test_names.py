"""Entities and relations by what people type: names, labels, short forms, local names."""

from __future__ import annotations

import pytest

from nscaching import KnowledgeGraph, UserError
from nscaching.runs import settings

BRICK, SSN = "https://brickschema.org/schema/Brick#", "http://www.w3.org/ns/ssn/"
TURTLE = f"""
@prefix brick: <{BRICK}> .
@prefix ssn: <{SSN}> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
brick:Sensor rdfs:label "Measuring device" ; brick:isPartOf brick:System .
brick:Alarm brick:isPartOf brick:System ; rdfs:label "sensor alarm" .
ssn:System rdfs:seeAlso brick:System .
ssn:Deployment rdfs:seeAlso brick:Sensor .
"""


@pytest.fixture
def ontology(tmp_path):
    (tmp_path / "brick.ttl").write_text(TURTLE)
    return KnowledgeGraph.load(tmp_path / "brick.ttl")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{BRICK}Sensor", f"{BRICK}Sensor"),
        ("brick:Sensor", f"{BRICK}Sensor"),
        ("Sensor", f"{BRICK}Sensor"),
        ("sensor", f"{BRICK}Sensor"),
        ("Measuring device", f"{BRICK}Sensor"),
        ("measuring DEVICE", f"{BRICK}Sensor"),
        ("brick:System", f"{BRICK}System"),
        ("ssn:System", f"{SSN}System"),
        ("SSN:system", f"{SSN}System"),
        ("deployment", f"{SSN}Deployment"),
    ],
)
def test_every_spelling_finds_the_entity(ontology, text, name):
    assert ontology.entities[ontology.entity_id(text)] == name


def test_relations_are_found_alike(ontology):
    for text in (f"{BRICK}isPartOf", "brick:isPartOf", "isPartOf", "ispartof"):
        assert ontology.relations[ontology.relation_id(text)] == f"{BRICK}isPartOf"


def test_an_ambiguous_name_shows_the_choices(ontology):
    for text in ("System", "system"):
        with pytest.raises(UserError) as error:
            ontology.entity_id(text)
        question = f"2 entities are called {text!r}; say which: brick:System, ssn:System"
        assert str(error.value) == question


def test_labels_go_before_local_names():
    graph = KnowledgeGraph.from_triples(
        [
            ("http://a.org/x", "/people/person/born", "/m/1"),
            ("http://b.org/X", "/film/born", "and/or"),
        ],
        labels={"/m/1": "x"},
        split_seed=None,
    )  # fmt: skip
    assert graph.entity_id("x") == graph.entity_id("X") == graph.entities.index("/m/1")
    assert graph.entity_id("1") == graph.entities.index("/m/1")
    assert graph.entity_id("or") == graph.entities.index("and/or")
    with pytest.raises(UserError, match="2 relations are called 'born'; say which: /people/person"):
        graph.relation_id("born")


def test_the_short_form_is_shown(ontology):
    assert [ontology.short(f"{BRICK}System"), ontology.short("plain")] == ["brick:System", "plain"]
    shown = {name: ontology.label(i) for i, name in enumerate(ontology.entities)}
    assert shown[f"{BRICK}Sensor"] == "Measuring device"
    assert shown[f"{SSN}System"] == "ssn:System"
    table = KnowledgeGraph.from_triples([("http://dbpedia.org/resource/Berlin", "in", "x")])
    assert [table.label(i) for i in (0, 1)] == ["dbr:Berlin", "x"]


def test_a_run_keeps_the_prefixes(ontology, tmp_path):
    assert ontology.prefixes["brick"] == BRICK
    settings.write_graph(tmp_path, ontology)
    back = settings.read_graph(tmp_path, ontology.source)
    assert back.prefixes == ontology.prefixes
    assert back.entity_id("ssn:System") == ontology.entity_id("ssn:System")


def test_an_unknown_name_shows_what_there_is():
    graph = KnowledgeGraph.from_triples([(f"city {i}", "near", f"city {i + 1}") for i in range(30)])
    with pytest.raises(
        UserError, match="none of the 31 known is close to it; some are city 0, city 1"
    ):
        graph.entity_id("zzzzzz")
    with pytest.raises(UserError, match="unknown entity 'citi 7'; nearest: city 7"):
        graph.entity_id("citi 7")
    with pytest.raises(UserError, match="unknown relation 'far'; known: near"):
        graph.relation_id("far")


def test_each_known_name_is_listed_once(ontology):
    with pytest.raises(UserError) as error:
        ontology.relation_id("brick:nothing")
    known = str(error.value).partition("known: ")[2].partition(" (did")[0].split(", ")
    assert known == [ontology.relation_label(i) for i in range(len(ontology.relations))]
