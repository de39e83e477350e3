"""The bundled ``world`` data set: its promises hold, and it can be made again."""

import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORLD = ROOT / "src" / "nscaching" / "data" / "world"
PARTS = ("train", "valid", "test")
CLASSES = {"1-1", "1-N", "N-1", "N-N"}


def read(part):
    text = (WORLD / f"{part}.tsv").read_bytes().decode("utf-8")
    return [tuple(line.split("\t")) for line in text.removesuffix("\n").split("\n")]


SPLITS = {part: read(part) for part in PARTS}
FACTS = {triple for part in PARTS for triple in SPLITS[part]}


def entities(triples):
    return {entity for h, _, t in triples for entity in (h, t)}


def relations(triples):
    return {r for _, r, _ in triples}


def mapping_class(relation):
    pairs = [(h, t) for h, r, t in SPLITS["train"] if r == relation]
    tails_per_head = len(pairs) / len({h for h, _ in pairs})
    heads_per_tail = len(pairs) / len({t for _, t in pairs})
    return f"{'N' if heads_per_tail >= 1.5 else '1'}-{'N' if tails_per_head >= 1.5 else '1'}"


def tails(head, relation):
    return {t for h, r, t in FACTS if (h, r) == (head, relation)}


def heads(relation, tail):
    return {h for h, r, t in FACTS if (r, t) == (relation, tail)}


@pytest.mark.parametrize("part", PARTS)
def test_lines_are_clean(part):
    data = (WORLD / f"{part}.tsv").read_bytes()
    assert data.endswith(b"\n")
    assert b"\r" not in data
    for triple in SPLITS[part]:
        assert len(triple) == 3
        head, relation, tail = triple
        assert head != tail
        assert re.fullmatch(r"[a-z_]+", relation)
        for name in (head, tail):
            assert name
            assert name == " ".join(name.split())
            assert name == unicodedata.normalize("NFC", name)
            assert name.isprintable()
            assert any(c.isalpha() for c in name)


def test_size():
    assert len(FACTS) >= 5_000
    assert len(relations(FACTS)) >= 8


def test_no_triple_occurs_twice():
    assert sum(len(triples) for triples in SPLITS.values()) == len(FACTS)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_split_is_about_five_per_cent(part):
    assert 0.04 <= len(SPLITS[part]) / len(FACTS) <= 0.06


@pytest.mark.parametrize("part", ["valid", "test"])
def test_held_out_names_occur_in_train(part):
    assert entities(SPLITS[part]) <= entities(SPLITS["train"])
    assert relations(SPLITS[part]) <= relations(SPLITS["train"])


def test_every_relation_is_tested():
    assert relations(SPLITS["test"]) == relations(SPLITS["train"])


@pytest.mark.parametrize("part", PARTS)
def test_all_mapping_classes_occur(part):
    assert {mapping_class(r) for r in relations(SPLITS[part])} == CLASSES


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("borders", "N-N"),
        ("capital", "1-1"),
        ("has_province", "1-N"),
        ("in_region", "N-1"),
        ("in_subregion", "N-1"),
    ],
)
def test_mapping_class_of_clear_cases(relation, expected):
    assert mapping_class(relation) == expected


def test_facts_about_one_pair_stay_together():
    pairs = {part: {frozenset((h, t)) for h, _, t in SPLITS[part]} for part in PARTS}
    assert not pairs["train"] & pairs["valid"]
    assert not pairs["train"] & pairs["test"]
    assert not pairs["valid"] & pairs["test"]


def test_borders_are_symmetric():
    borders = {(h, t) for h, r, t in FACTS if r == "borders"}
    assert borders == {(t, h) for h, t in borders}


@pytest.mark.parametrize("relation", ["capital", "has_province"])
def test_places_belong_to_one_country(relation):
    owners = Counter(t for _, r, t in FACTS if r == relation)
    assert set(owners.values()) == {1}


def test_kinds_of_entities_do_not_share_names():
    tails_of = {r: {t for _, r2, t in FACTS if r2 == r} for r in relations(FACTS)}
    del tails_of["borders"]
    kinds = [{h for h, r, _ in FACTS if r == "in_region"}, *tails_of.values()]
    assert sum(len(kind) for kind in kinds) == len(set().union(*kinds)) == len(entities(FACTS))


def test_time_zones_are_written_alike():
    zones = {t for _, r, t in FACTS if r == "in_time_zone"}
    assert all(re.fullmatch(r"UTC[+-]\d\d:\d\d", zone) for zone in zones)


@pytest.mark.parametrize(
    "triple",
    [
        ("Portugal", "capital", "Lisbon"),
        ("Portugal", "borders", "Spain"),
        ("Spain", "borders", "Portugal"),
        ("France", "borders", "Spain"),
        ("France", "in_region", "Europe"),
        ("France", "uses_currency", "Euro"),
        ("Portugal", "in_subregion", "Southern Europe"),
        ("Lisbon", "in_subregion", "Southern Europe"),
        ("Portugal", "speaks", "Portuguese"),
        ("Greece", "speaks", "Greek"),
        ("Japan", "in_time_zone", "UTC+09:00"),
        ("Luxembourg", "capital", "Luxembourg (city)"),
        ("Jamaica", "capital", "Kingston (Jamaica)"),
        ("Kenya", "in_intermediate_region", "Eastern Africa"),
        ("United States", "has_province", "Georgia (United States)"),
        ("Paraguay", "uses_currency", "Guarani (currency)"),
        ("Paraguay", "speaks", "Guarani"),
    ],
)
def test_known_fact(triple):
    assert triple in FACTS


def test_known_answers():
    assert tails("Portugal", "borders") == {"Spain"}
    assert tails("Spain", "capital") == {"Madrid"}
    assert "Brazil" in heads("speaks", "Portuguese")


def test_mistakes_of_the_source_are_put_right():
    assert "Kinshasa (Democratic Republic of the Congo)" in tails(
        "Democratic Republic of the Congo", "has_province"
    )
    assert not tails("South Sudan", "has_province")
    assert not any("Canillo" in name for name in tails("Angola", "has_province"))


def test_readme_table_matches_the_data():
    readme = (WORLD / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` +\|(.+)\|$", readme, flags=re.MULTILINE)
    found = {}
    for relation, rest in rows:
        _, count, _, _, mapping, valid, test = (cell.strip() for cell in rest.split("|"))
        found[relation] = (int(count), mapping, int(valid), int(test))
    counts = {part: Counter(r for _, r, _ in SPLITS[part]) for part in PARTS}
    expected = {
        r: (
            sum(counts[part][r] for part in PARTS),
            mapping_class(r),
            counts["valid"][r],
            counts["test"][r],
        )
        for r in relations(FACTS)
    }
    assert found == expected


def test_script_makes_the_same_files(tmp_path):
    for package in ("countryinfo", "pycountry"):
        pytest.importorskip(package, reason=f"{package} is needed to build the data set")
    script = ROOT / "tools" / "build_world.py"
    # A random hash seed would show any dependence on the order of sets.
    subprocess.run(
        [sys.executable, "-W", "error", str(script), "--out", str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        stdout=subprocess.DEVNULL,
    )
    for part in PARTS:
        name = f"{part}.tsv"
        assert (tmp_path / name).read_bytes() == (WORLD / name).read_bytes()
