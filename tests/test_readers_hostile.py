"""Names and files that are hard on a reader: huge, packed to explode, without an end, or odd."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from nscaching import KnowledgeGraph, UserError
from nscaching.data.index import AnswerIndex, distinct
from nscaching.data.readers import blocks, name_table, table
from nscaching.data.readers.name_loops import hash_of
from nscaching.data.readers.name_table import BulkNames, NameTable
from nscaching.data.readers.openke import read_openke_ids
from nscaching.data.readers.table import read_labels, read_triples
from nscaching.data.sorting import for_parts

MILLION = "x" * 1_000_000
ODD = [
    ('say "hi"', "'r'", '"'),
    ("\u200fשלום עולם", "\u202eevil", "مرحبا"),
    ("👩‍👧", "🏳️‍🌈", "e\u0301"),
    ("\u00a0", "\u3000r", "z\u2028z"),
    (MILLION, "r", MILLION + "y"),
    ("<script>", "[red]", "%s{0}\\n"),
]


def names_of(path):
    entities, relations = NameTable(), NameTable()
    ids = read_triples(path, entities, relations, []).tolist()
    e, r = list(entities), list(relations)
    return [(e[h], r[p], e[t]) for h, p, t in ids]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.csv"])
def test_odd_names_survive(tmp_path, name, end):
    def quoted(text):
        return '"' + text.replace('"', '""') + '"' if name == "a.csv" else text

    separator = "," if name == "a.csv" else "\t"
    text = "".join(separator.join(map(quoted, row)) + end for row in ODD)
    data = ("\ufeff" + text).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert names_of(tmp_path / name) == ODD


def test_tabs_and_line_breaks_are_names_in_csv_only(tmp_path):
    (tmp_path / "a.csv").write_text('"a\tb","r\ns",c\n')
    assert names_of(tmp_path / "a.csv") == [("a\tb", "r\ns", "c")]
    (tmp_path / "a.tsv").write_text("a\tb\tr\ts\tc\n")
    with pytest.raises(UserError, match=r"a\.tsv:1: expected 3 columns .* found 5"):
        names_of(tmp_path / "a.tsv")


# Lines without an end. The limit is lowered where only the rule is tested.


@pytest.mark.parametrize("block", [5, 19])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.tsv.gz"])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(blocks, "LINE_LIMIT", 20)
    monkeypatch.setattr(blocks, "BLOCK", block)
    row, separator = ["a" * 9, "r", "b" * 8], "," if name == "a.csv" else "\t"
    good = separator.join(row)
    assert len(good) == 20
    for text, line in [(f"{good}\n{good}x\n{good}\n", 2), (f"{good}\n{good}\n{good}x", 3)]:
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        with pytest.raises(UserError, match=f"{name}:{line}: the line is longer than 20 bytes"):
            names_of(tmp_path / name)
    data = f"{good}\n{good}\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert names_of(tmp_path / name) == [tuple(row)] * 2


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.data.readers.table.LINE_LIMIT", 100)
    (tmp_path / "a.csv").write_text('a,r,b\n"a,r,b\n' + "c,r,d\n" * 99)
    with pytest.raises(UserError, match=r"a\.csv:2: the record is longer than 100 characters"):
        names_of(tmp_path / "a.csv")


LIMITED = """
import resource, sys, time
import nscaching.data.load
from nscaching import KnowledgeGraph, UserError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
for path in sys.argv[1:]:
    began = time.perf_counter()
    try:
        KnowledgeGraph.load(path)
    except UserError as error:
        print(error, "in time" if time.perf_counter() - began < 20 else "late")
"""


def test_two_gigabytes_in_a_line_are_refused_at_once_and_in_little_memory(tmp_path):
    for name in ("a.tsv", "b.csv", "c.txt", "d.nt"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"a\tr\tb\n" if name == "a.tsv" else b"")
            file.truncate(2 << 30)  # NULs that take no room on the disk
    bomb = tmp_path / "e.tsv.gz"
    bomb.write_bytes(packed_zeros(2 << 10))
    paths = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *paths], capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert len(said) == len(paths)
    for path, line in zip(paths, said, strict=True):
        number = 2 if path.name == "a.tsv" else 1
        assert line == f"{path}:{number}: the line is longer than 16,777,216 bytes in time"


def packed_zeros(mebibytes, unit=b"\0" * (1 << 20)):
    """Pack so many times the same MiB, as one gzip file of many members."""
    packer = zlib.compressobj(9, wbits=31)
    member = packer.compress(unit) + packer.flush()
    return member * mebibytes


def test_a_file_that_is_packed_to_explode_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "UNPACKED_FREE", 8 << 20)
    line = b"a\tr\tb\n"
    bomb = tmp_path / "a.tsv.gz"
    bomb.write_bytes(packed_zeros(64, line * (1 << 17)))
    with pytest.raises(UserError, match=r"a\.tsv\.gz: unpacks to more than 250 times its size"):
        KnowledgeGraph.load(bomb)
    bomb.write_bytes(gzip.compress(line * 9))  # a small file may be packed as well as it likes
    assert len(names_of(bomb)) == 9


@pytest.mark.parametrize("blank", ["\n", " \t\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.tsv.gz", "a.csv.gz", "labels.tsv.gz", "train2id.txt.gz"])
def test_millions_of_blank_lines_are_read_at_once(tmp_path, name, blank):
    mebibytes, lines = 64, (1 << 20) // len(blank)
    good, bad = {
        "a.tsv.gz": ("a\tr\tb\n", "a\tr\n"),
        "a.csv.gz": ("a,r,b\n", "a,r\n"),
        "labels.tsv.gz": ("a\tx\n", "a\n"),
        "train2id.txt.gz": ("2\n0 0 0\n", "0 0\n"),
    }[name]
    path = tmp_path / name
    blanks = packed_zeros(mebibytes, (blank * lines).encode())
    path.write_bytes(gzip.compress(good.encode()) + blanks + gzip.compress(bad.encode()))
    number = good.count("\n") + mebibytes * lines + 1
    read = {"labels.tsv.gz": read_labels, "train2id.txt.gz": lambda p: read_openke_ids(p, 1, 1)}
    began = time.process_time()
    with pytest.raises(UserError, match=f"{name}:{number}: expected "):
        read.get(name, names_of)(path)
    assert time.process_time() - began < 5  # line by line, 13 seconds and more


def test_blank_lines_inside_quotes_are_part_of_a_name(tmp_path):
    (tmp_path / "a.csv").write_text('\n \na,r,b\n\n\n"a\n\n \n\tb",r,"\n\nc"\n \n', newline="\r\n")
    assert names_of(tmp_path / "a.csv") == [("a", "r", "b"), ("a\n\n \n\tb", "r", "\n\nc")]


# The twins.


def random_table(random, lines):
    letters = ["a", "b", "é", "日", "x y", "👩", "q" * 40]
    return "".join(
        "\t".join("".join(random.choice(letters, random.integers(1, 4))) for _ in range(3)) + "\n"
        for _ in range(lines)
    )


@pytest.mark.parametrize("seed", range(4))
def test_bulk_names_number_as_the_plain_reader_does(tmp_path, monkeypatch, seed):
    random = np.random.default_rng(seed)
    odd = "\n" if seed % 2 else " a \tb\tc\n"  # a block that only the plain reader takes
    text = random_table(random, 300) + odd + random_table(random, 300)
    if seed > 1:
        text = "head\trelation\ttail\n" + text
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    found = []
    for bulk_after in (2, 10**9, None):
        monkeypatch.setattr(blocks, "BLOCK", 700)
        monkeypatch.setattr(name_table, "BULK_AFTER", bulk_after or 1)
        if bulk_after is None:
            monkeypatch.setattr(table, "quick_names", lambda block, separator: None)
        entities, relations = NameTable(), NameTable()
        ids = read_triples(tmp_path / "a.tsv", entities, relations, [])
        again = read_triples(tmp_path / "a.tsv", entities, relations, [])  # now all names are known
        assert (again == ids).all()
        found.append((ids.tolist(), list(entities.items()), list(relations.items())))
    assert found[0] == found[1] == found[2]


def test_bulk_names_number_alike_when_their_table_grows(tmp_path, monkeypatch):
    rows = [(f"e{i * i % 9973}", f"r{i % 7}", f"e{i}") for i in range(9000)]
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    monkeypatch.setattr(blocks, "BLOCK", 9000)
    monkeypatch.setattr(name_table, "BULK_AFTER", 2)
    assert names_of(tmp_path / "a.tsv") == rows


def test_an_error_in_a_later_block_has_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 64)
    monkeypatch.setattr(name_table, "BULK_AFTER", 2)
    (tmp_path / "a.tsv").write_text("a\tr\tb\n" * 500 + "c\td\n")
    with pytest.raises(UserError, match=r"a\.tsv:501: expected 3 columns .* found 2: 'c\\td'"):
        names_of(tmp_path / "a.tsv")


def test_names_prepared_to_collide_under_one_seed_do_not_under_another():
    names = [np.frombuffer(f"name {i}".encode(), np.uint8) for i in range(50_000)]

    def slots(chosen, seed):
        return [int(hash_of(name, 0, len(name), np.uint64(seed))) % 1024 for name in chosen]

    prepared = [name for name, slot in zip(names, slots(names, 7), strict=True) if slot == 0]
    assert len(prepared) > 20
    for seed in (8, 7 + 2**63):
        assert len(set(slots(prepared, seed))) > 0.9 * len(prepared)
    assert len({int(BulkNames(NameTable()).seed) for _ in range(9)}) == 9


@pytest.mark.parametrize("what", ["seed", "first", "last"])
def test_every_bit_of_a_hash_depends_on_the_seed_and_on_every_byte(what):
    name, flips = np.frombuffer(b"a name", np.uint8), []
    for seed in range(200):
        data = name.copy()
        if what != "seed":
            data[0 if what == "first" else -1] ^= 1
        hashes = (
            hash_of(name, 0, 6, np.uint64(seed)),
            hash_of(data, 0, 6, np.uint64(seed + 2**63 if what == "seed" else seed)),
        )
        flips.append([int(hashes[0] ^ hashes[1]) >> bit & 1 for bit in range(64)])
    assert np.abs(np.mean(flips, axis=0) - 0.5).max() < 0.2


# Numbers at sizes where 32 bits do not do, and where 64 do not.


@pytest.mark.parametrize("top", [3, 2_000_000, 2**31 - 2])
def test_codes_hold_at_any_size(top):
    random = np.random.default_rng(0)
    near = np.array([0, 1, top - 1, top])
    triples = near[random.integers(0, 4, (300, 3))].astype(np.int32)
    numbered = for_parts(tuple(triples.T), lambda part: part) is None
    assert numbered == (top > 2_000_000)  # both ways to sort are taken
    expected = list(dict.fromkeys(map(tuple, triples.tolist())))
    assert list(map(tuple, distinct(triples).tolist())) == expected
    anchor, relation, answer = triples.T
    index = AnswerIndex.build(anchor, relation, answer, top + 1)
    wanted = {}
    for a, r, e in triples.tolist():
        wanted.setdefault((a, r), set()).add(e)
    assert len(index) == len(wanted)
    for key, (a, r) in enumerate(sorted(wanted)):
        assert index.codes[key] == a * (top + 1) + r
        assert index.keys(np.array([a]), np.array([r])).tolist() == [key]
        found = index.answers[index.offsets[key] : index.offsets[key + 1]]
        assert found.tolist() == sorted(wanted[a, r])
    if top > 3:
        assert index.keys(np.array([2], np.int32), np.array([2], np.int32)).tolist() == [-1]
    assert index.answers.dtype == np.int32


def test_an_empty_index_answers_nothing():
    none = np.empty(0, np.int32)
    index = AnswerIndex.build(none, none, none, 3)
    assert len(index) == 0
    assert index.keys(np.array([1]), np.array([2])).tolist() == [-1]
    assert distinct(np.empty((0, 3), np.int32)).shape == (0, 3)


def test_progress_is_heard_to_the_end(tmp_path):
    heard = []
    (tmp_path / "a.tsv").write_text("a\tr\tb\n" * 5)
    KnowledgeGraph.load(tmp_path / "a.tsv", progress=lambda *said: heard.append(said))
    assert heard == [("reading a.tsv", 30, 30), *(("splitting a.tsv", n, 4) for n in range(4))]


def test_a_label_of_a_million_characters(tmp_path):
    (tmp_path / "labels.tsv").write_text(f"a\t{MILLION}\n")
    assert read_labels(tmp_path / "labels.tsv") == {"a": MILLION}
    (tmp_path / "labels.tsv").write_text(MILLION)
    with pytest.raises(UserError) as error:
        read_labels(tmp_path / "labels.tsv")
    assert len(str(error.value)) < 400
