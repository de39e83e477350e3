"""Files of triples, names and labels: every format read alike, every flaw named by its line."""

from __future__ import annotations

import csv
import gzip
import io
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import written
from nscaching.data.readers.blocks import CONTROL
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.openke import read_openke_ids, read_openke_labelled, read_openke_names
from nscaching.data.readers.table import read_labels, read_triples
from nscaching.errors import UserError

TRIPLES = [("Ada Lovelace", "knows", "Émile"), ("Émile", "likes", "Łódź"), ("Łódź", "in", "日本")]
SPACED = [tuple(name.replace(" ", "_") for name in triple) for triple in TRIPLES]


def read(path):
    """Return the triples of a file by name."""
    entities, relations = NameTable(), NameTable()
    ids = read_triples(path, entities, relations, [])
    assert ids.dtype == np.int32
    e, r = list(entities), list(relations)
    return [(e[head], r[relation], e[tail]) for head, relation, tail in ids.tolist()]


def rows(triples, separator, end="\n"):
    return "".join(separator.join(triple) + end for triple in triples)


@pytest.mark.parametrize("packed", ["", ".gz", ".GZ"])
@pytest.mark.parametrize(
    ("name", "separator", "triples"),
    [
        ("a.tsv", "\t", TRIPLES),
        ("a.txt", "\t", TRIPLES),
        ("a.csv", "\t", TRIPLES),  # some programs do
        ("a.nt2", "\t", TRIPLES),
        ("a.csv", ",", TRIPLES),
        ("a.CSV", ", ", TRIPLES),
        ("a.txt", ",", TRIPLES),
        ("a.txt", " ", SPACED),
        ("a", "   ", SPACED),
        ("a.tsv", " ", SPACED),
    ],
)
def test_every_format_is_read_alike(tmp_path, name, separator, triples, packed):
    assert read(written(tmp_path, name + packed, rows(triples, separator))) == triples


@pytest.mark.parametrize("separator", ["\t", ",", " "])
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "\ufeff{}",
        "\n  \n{}\n\n\t\n",
        "head{s}relation{s}tail\n{}",
        "\ufeffHead{s}Relation{s}Tail\n\n{}",
        "subject{s}predicate{s}object\n{}",
    ],
    ids=["plain", "BOM", "blank lines", "header", "BOM and header", "other header"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_line_ends_marks_and_headers_are_no_names(tmp_path, separator, text, end):
    table = text.format(rows(SPACED, separator), s=separator).replace("\n", end)
    assert read(written(tmp_path, "a.txt", table)) == SPACED
    assert read(written(tmp_path, "a.txt", table.removesuffix(end))) == SPACED  # no last line end


def test_a_header_is_one_line_and_the_first(tmp_path):
    text = "h\tr\tt\n" * 2
    assert read(written(tmp_path, "a.tsv", text)) == [("h", "r", "t")]
    assert read(written(tmp_path, "b.tsv", "a\tb\tc\n" + text)) == [
        ("a", "b", "c"),
        ("h", "r", "t"),
        ("h", "r", "t"),
    ]


def test_ids_are_given_by_first_occurrence_and_go_on_from_file_to_file(tmp_path):
    entities, relations = NameTable(), NameTable()
    first = written(tmp_path, "a.tsv", "x\tr\ty\ny\tr\tx\nx\tr\ty\n")
    assert read_triples(first, entities, relations, []).tolist() == [
        [0, 0, 1],
        [1, 0, 0],
        [0, 0, 1],
    ]
    second = written(tmp_path, "b.tsv", "z\ts\tx\n")
    assert read_triples(second, entities, relations, []).tolist() == [[2, 1, 0]]
    assert list(entities) == ["x", "y", "z"]
    assert list(relations) == ["r", "s"]


def test_a_no_break_space_belongs_to_a_name(tmp_path):
    path = written(tmp_path, "a.txt", "100\u00a0m run 100\u00a0m\n\u3000x run y\u3000\n")
    assert read(path) == [("100\u00a0m", "run", "100\u00a0m"), ("\u3000x", "run", "y\u3000")]


def test_quotes_mean_something_in_csv_only(tmp_path):
    quoted = [('say "hi"', "r", "a, b"), ("tab\there", "r", "$x$"), ("two\n\nlines", "r", "z")]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(quoted)
    assert read(written(tmp_path, "a.csv", text.getvalue())) == quoted
    turned = [quoted[1], quoted[0], quoted[2]]  # a tab in the first line does not make it a TSV
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(turned)
    assert read(written(tmp_path, "b.csv", text.getvalue())) == turned
    plain = [('"x"', "r", "'y'"), ('"', "r", 'a"b')]
    assert read(written(tmp_path, "a.tsv", rows(plain, "\t"))) == plain


# Any text may be a name, but for control characters and what begins or ends with a blank.
letters = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff")
names = st.text(letters, min_size=1, max_size=8).filter(lambda s: s.strip() == s)
triples_of_names = st.lists(st.tuples(names, names, names), min_size=1, max_size=6)


@given(triples_of_names)
@example([("[bold]x[/bold]", "$r$", "👩‍👧"), ("שלום", "\\", "'\"")])
def test_names_survive_a_tsv(tmp_path_factory, triples):
    path = written(tmp_path_factory.mktemp("t"), "a.tsv", "head\trelation\ttail\n")
    path.write_text(path.read_text() + rows(triples, "\t"), encoding="utf-8", newline="")
    assert read(path) == triples


csv_names = st.text(st.one_of(letters, st.sampled_from(',"\t\n ')), min_size=1, max_size=8).filter(
    lambda s: s.strip(" ") == s != ""
)


@given(st.lists(st.tuples(csv_names, csv_names, csv_names), min_size=1, max_size=6))
def test_names_survive_a_csv(tmp_path_factory, triples):
    path = tmp_path_factory.mktemp("t") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([("head", "relation", "tail"), *triples])
    assert read(path) == triples


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "", "a.tsv: the file is empty"),
        ("a.tsv", "\n \n\n", "a.tsv: the file is empty"),
        ("a.tsv.gz", "", "a.tsv.gz: the file is empty"),
        ("a.tsv", "head\trelation\ttail\n", "a.tsv: the file holds no triples"),
        ("a.tsv", "a\tr\tb\n\na\tr\n", r"a.tsv:3: expected 3 .* found 2: 'a\\tr'"),
        ("a.tsv", "a\tr\tb\tc\n", r"a.tsv:1: expected 3 .* found 4: 'a\\tr\\tb\\tc'"),
        ("a.tsv", "a\tr\tb\na\tr\tb\t\n", "a.tsv:2: expected 3 .* found 4"),
        ("a.txt", "a r b\na r New York\n", "a.txt:2: expected 3 .* found 4: 'a r New York'"),
        ("a.txt", "a r b\na\tr\tb\n", "a.txt:2: expected 3 .* found 1"),
        ("a.csv", "a,r,b\na,r,b,c\n", "a.csv:2: expected 3 .* found 4: 'a,r,b,c'"),
        ("a.csv", "a b c\n", "a.csv:1: expected 3 .* found 1"),
        ("a.csv", 'a,r,b\n"x,r,b\nc,r,d\n', "a.csv:2: not valid CSV .*: '\"x,r,b'"),
        ("a.csv", 'a,r,b\n\n"x"y,r,b\nc,r,d\n', "a.csv:3: not valid CSV"),
        ("a.csv", 'a,r,b\n"x\ny",r\n', "a.csv:2: expected 3 .* found 2"),
        ("a.tsv", "a\t \tb\n", "a.tsv:1: a name is empty"),
        ("a.csv", "a,r,b\n,r,b\n", "a.csv:2: a name is empty: ',r,b'"),
        ("a.tsv", b"a\tr\tb\na\tr\t\xff\xfe\n", "a.tsv:2: not UTF-8: .* at byte 4"),
        ("a.tsv", "a\tr\tb\n".encode("utf-16"), "a.tsv:1: not UTF-8"),
        ("a.tsv", "é\tr\tb\n".encode("latin-1"), "a.tsv:1: not UTF-8"),
        ("a.tsv", "a\tr\tb\nx\tr\ty\0z\n", r"a.tsv:2: control character '\\x00' in 'x\\tr"),
        ("a.tsv", "a\tr\tb\x1b[31m\n", r"a.tsv:1: control character '\\x1b'"),
        ("a.tsv", "a\tr\tb\rc\n", r"a.tsv:1: control character '\\r'"),
        ("a.csv", "a,r,b\rc,r,d\n", r"a.csv:1: control character '\\r'"),
        ("a.txt", "a r b\x85c\n", r"a.txt:1: control character '\\x85'"),
        ("a.tsv", "a\tr" + "x" * 500, r"a.tsv:1: .* found 2: 'a\\trx{77}…'$"),
    ],
)
def test_a_flaw_is_named_with_file_and_line(tmp_path, name, data, message):
    with pytest.raises(UserError, match=message) as error:
        read(written(tmp_path, name, data))
    assert str(error.value).startswith(str(tmp_path))
    assert "\n" not in str(error.value)


def test_what_is_no_readable_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.tsv: cannot read it: No such file or directory$"):
        read(tmp_path / "gone.tsv")
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(UserError, match=r"folder\.tsv: cannot read it: Is a directory$"):
        read(tmp_path / "folder.tsv")
    packed = gzip.compress(rows(TRIPLES * 99, "\t").encode())
    damaged = {
        "text": b"a\tr\tb\n",
        "short": packed[:-12],
        "bent": packed[:20] + b"\0" * 20 + packed[40:],
    }
    for name, data in damaged.items():
        (tmp_path / f"{name}.tsv.gz").write_bytes(data)
        with pytest.raises(UserError, match=rf"{name}\.tsv\.gz: cannot read it: \S"):
            read(tmp_path / f"{name}.tsv.gz")


# Labels.


def test_labels(tmp_path):
    text = "\ufeff/m/1\tDenton \r\n\r\n /m/2\t[b] a\tb\r\n/m/1\tDenton, Texas\r\n"
    for name in ("labels.tsv", "labels.tsv.gz"):
        found = read_labels(written(tmp_path, name, text))
        assert found == {"/m/1": "Denton, Texas", "/m/2": "[b] a\tb"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "labels.tsv: the file is empty"),
        ("a\tb\nno tab\n", "labels.tsv:2: expected an entity, a tab and a label: 'no tab'"),
        ("a\t\n", "labels.tsv:1: expected"),
        ("\tb\n", "labels.tsv:1: expected"),
    ],
)
def test_bad_labels(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_labels(written(tmp_path, "labels.tsv", text))


# OpenKE: the same numbers whether NumPy reads them or, after any oddity, our own loop.


def openke(folder, text, name="train2id.txt"):
    return read_openke_ids(written(folder, name, text), 10, 5)


@pytest.mark.parametrize(
    "text",
    [
        "2\n0 9 4\n8 0 1\n",
        "2\r\n0\t9\t4\r\n8\t0\t1\r\n",
        "\ufeff2\n0 9 4\n8 0 1",
        "\n 2 \n\n0   9 4 \n\n 8 0 1\n\n",
    ],
)
@pytest.mark.parametrize("name", ["train2id.txt", "train2id.txt.gz"])
def test_openke_ids_come_as_head_relation_tail(tmp_path, text, name):
    ids = openke(tmp_path, text, name)
    assert ids.tolist() == [[0, 4, 9], [8, 1, 0]]
    assert ids.dtype == np.int32


def test_openke_may_hold_no_triples(tmp_path):
    assert openke(tmp_path, "0\n").shape == (0, 3)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4)), max_size=8),
    st.sampled_from(["", "\n", " \n"]),
)
def test_openke_ids_with_and_without_blank_lines(tmp_path_factory, triples, blank):
    text = f"{len(triples)}\n" + "".join(f"{h} {t} {r}\n{blank}" for h, t, r in triples)
    ids = openke(tmp_path_factory.mktemp("t"), text)
    assert ids.tolist() == [[h, r, t] for h, t, r in triples]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "train2id.txt: the file is empty"),
        ("0 1 0\n1 0 0\n", "train2id.txt:1: expected the number of triples, found '0 1 0'"),
        ("-1\n", "train2id.txt:1: expected the number of triples"),
        ("two\n0 1 0\n", "train2id.txt:1: expected the number of triples, found 'two'"),
        ("1" * 5000 + "\n0 1 0\n", "train2id.txt:1: expected the number of triples"),
        ("3\n0 1 0\n1 0 0\n", "train2id.txt:1: says 3 triples, but 2 follow"),
        ("\n1\n0 1 0\n1 0 0\n", "train2id.txt:2: says 1 triples, but 2 follow"),
        ("1\n", "train2id.txt:1: says 1 triples, but 0 follow"),
        ("1\n0 1\n", "train2id.txt:2: expected 3 integers, found 2: '0 1'"),
        ("2\n0 1 0\n\n0 1 0 1\n", "train2id.txt:4: expected 3 integers, found 4: '0 1 0 1'"),
        ("1\n0 1 x\n", "train2id.txt:2: not all integers: '0 1 x'"),
        ("1\n0 1 1.0\n", "train2id.txt:2: not all integers"),
        ("1\n0 1_0 0\n", "train2id.txt:2: not all integers"),
        ("1\n0 ١ 0\n", "train2id.txt:2: not all integers"),
        ("1\n0 1 " + "1" * 5000, "train2id.txt:2: not all integers"),
        ("2\n0 1 0\n0 10 0\n", "train2id.txt:3: tail id 10 is out of range 0…9"),
        ("2\n\n\n0 1 0\n\n10 1 0\n", "train2id.txt:6: head id 10 is out of range 0…9"),
        ("1\n0 0 5\n", "train2id.txt:2: relation id 5 is out of range 0…4"),
        ("1\n0 -1 0\n", "train2id.txt:2: tail id -1 is out of range 0…9"),
        ("1\n4294967296 1 0\n", "train2id.txt:2: head id 4294967296 is out of range 0…9"),
        ("\r1\n0 1 0\n", r"train2id.txt:1: control character '\\r'"),
        ("1\n0 1 \r0\n", r"train2id.txt:2: control character '\\r'"),
        ("1\n0 1 0\0\n", r"train2id.txt:2: control character '\\x00'"),
        (b"1\n0 1 \xff\n", "train2id.txt:2: not UTF-8"),
    ],
)
def test_flaws_of_openke_ids(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        openke(tmp_path, text)


def test_openke_names(tmp_path):
    path = written(tmp_path, "entity2id.txt", "3\nsecond one\t1\n\n/m/0 0\r\n  third  2\n")
    assert read_openke_names(path) == ["/m/0", "second one", "third"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "entity2id.txt: the file is empty"),
        ("a\t0\nb\t1\n", r"entity2id.txt:1: expected the number of names, found 'a\\t0'"),
        ("2\na\t0\n", "entity2id.txt:1: says 2 names, but 1 follow"),
        ("1\na\t0\nb\t1\n", "entity2id.txt:1: says 1 names, but 2 follow"),
        ("99999999999999\na\t0\n", "entity2id.txt:1: says 99,999,999,999,999 names, but 1 follow"),
        ("9" * 30 + "\na\t0\n", "entity2id.txt:1: expected the number of names"),
        ("2\na\t0\nb\t2\n", "entity2id.txt:3: id 2 is out of range 0…1"),
        ("2\na\t0\nb\t0\n", "entity2id.txt:3: id 0 is given twice"),
        ("2\na\t0\na\t1\n", "entity2id.txt:3: name 'a' is given twice"),
        ("1\na\t-1\n", "entity2id.txt:2: expected a name and an id"),
        ("1\na\n", "entity2id.txt:2: expected a name and an id: 'a'"),
        ("1\n0\n", "entity2id.txt:2: expected a name and an id: '0'"),
        ("1\na\tx\n", "entity2id.txt:2: expected a name and an id"),
    ],
)
def test_flaws_of_openke_names(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_openke_names(written(tmp_path, "entity2id.txt", text))


def test_openke_labelled(tmp_path):
    path = written(tmp_path, "test_neg.txt", "0 9 4 1\n\n8 0 1 -1\n")
    found = read_openke_labelled(path, 10, 5)
    assert found.triples.tolist() == [[0, 4, 9], [8, 1, 0]]
    assert found.triples.dtype == np.int32
    assert found.truth.tolist() == [True, False]
    assert found.origin == "test_neg.txt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "test_neg.txt: the file is empty"),
        ("0 1 0\n", "test_neg.txt:1: expected 4 integers, found 3"),
        ("0 1 0 1\n\n0 1 0 0\n", "test_neg.txt:3: the label must be 1 or -1, not 0"),
        ("0 1 0 1\n0 1 9 1\n", "test_neg.txt:2: relation id 9 is out of range 0…4"),
        ("2\n0 1 0 1\n0 1 0 -1\n", "test_neg.txt:1: expected 4 integers, found 1"),
    ],
)
def test_flaws_of_openke_labelled(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_openke_labelled(written(tmp_path, "test_neg.txt", text), 10, 5)


def test_every_control_character_but_the_tab_is_refused():
    refused = {c for c in map(chr, range(256)) if CONTROL.search(c)}
    assert refused == {c for c in map(chr, [*range(32), *range(127, 160)]) if c not in "\t\n"}
    assert not re.search(CONTROL, "\u200d\u200f\u2028🙂")
