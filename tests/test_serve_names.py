"""Search over names finds what a look at every name finds."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nscaching.serve import names
from nscaching.serve.names import NameIndex, fold

SOME = st.text(alphabet="abAé _/#.'1\n", max_size=12)


def plain(entities, links, text, most):
    """Look at every name: whole names first, then beginnings of names, then of later words."""
    asked, found = fold(text).strip(), []
    for number, some in enumerate(entities):
        ranks = []
        for name in some:
            folded = fold(name.replace("\n", " "))
            if folded == asked:
                ranks.append(0)
            elif folded.startswith(asked):
                ranks.append(1)
            elif (
                re.search(r"(?<![0-9a-z\x80-\U0010ffff])" + re.escape(asked), folded)
                and asked[0] in "abe1"
            ):
                ranks.append(2)
        if ranks:
            found.append((min(ranks), -links[number], number))
    return [number for _, _, number in sorted(found)][:most]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(SOME, min_size=1, max_size=3), min_size=1, max_size=12), SOME, st.data())
def test_a_phrase_finds_what_a_look_at_every_name_finds(entities, text, data):
    links = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(entities), max_size=len(entities)))
    )
    index = NameIndex(entities, links)
    asked = fold(text).strip()
    if asked and "\n" not in asked:
        found = index._phrase(asked.encode(), 5)
        assert found == plain(entities, links, text, 5)
    else:
        assert len(index.search("", 5)) == min(5, len(entities))


def test_words_in_any_order_and_accents():
    index = NameIndex([["São Tomé"], ["Tome Sao"], ["Sao Paulo"]], np.array([1, 2, 3]))
    assert index.search("tome sao", 5) == [1, 0]
    assert index.search("são t", 5) == [0, 1]
    assert index.search("SÃO", 5) == [2, 0, 1]


def test_a_long_common_beginning_is_searched_by_its_end(monkeypatch):
    monkeypatch.setattr(names, "CHECKED", 500)
    base = "http://dbpedia.org/resource/"
    index = NameIndex([[f"{base}Name_{i}"] for i in range(2000)], np.arange(2000))
    assert index.search(f"{base}Name_17", 3) == [17, 1799, 1798]
    assert index.near("Nameless", 2) == [1999, 1998]


def test_names_may_hold_anything():
    index = NameIndex([["a\nb"], ["\x1f"], [""], ["x" * 10_000], ["🐘 elephant"]], np.zeros(5, int))
    assert index.search("a b", 3) == [0]
    assert index.search("x" * 10_000, 3) == [3]
    assert index.search("elep", 3) == [4]
    assert index.search("🐘", 3) == [4]
    assert len(index.search("", 9)) == 5
