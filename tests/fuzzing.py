"""Damaged files for every reader: valid ones, mutated. Used by test_fuzz.py and tools/fuzz.py."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import torch

from nscaching import KnowledgeGraph, Run, UserError, train
from nscaching.data.readers import blocks, name_table, openke, table
from nscaching.evaluation.shortlist import Evidence
from nscaching.paper.published import TABLES
from nscaching.paper.reproduce.results import Results
from nscaching.runs.settings import read_record, read_settings

SECONDS = 10.0  # far beyond what a file of some kilobytes takes
LONGEST = 2000  # characters of a message, its path apart

ROWS = [(f"e{i}", f"r{i % 2}", f"é {(i * i + 3) % 9}") for i in range(9)]
TSV = "".join("\t".join(row) + "\n" for row in ROWS).encode()
CSV = b"head,relation,tail\n" + "".join(f'{h},{r},"{t}, ""q""\n"\n' for h, r, t in ROWS).encode()
SPACED = TSV.replace(b" ", b"_").replace(b"\t", b" ")
UNUSUAL = b"a\tb\tc\n\n x\ty\tz \n\xe3\x80\x80\t\xe3\x80\x80\t\xe3\x80\x80\nq\tr\ts"
NT = b"".join(b"<http://x/%d> <http://x/p> <http://x/%d> .\n" % (i, i * i % 9) for i in range(9))
NT += b'_:b1 <http://x/p> "a\\u00e9\\n"@en .\n# x\n_:b1 <http://x/q> "5"^^<http://x/t> .\n'
TTL = b"@prefix : <http://x/> .\n@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
TTL += b'@base <http://y/> .\n:a a :B ; :p [ :q :c , "x" ] ; rdfs:label "Ah"@de-AT , """long\n'
TTL += b'one""" ; :n 1.5e3 , true .\n<rel> :p ( :a :b ) , _:n .\n'
NQ = NT.replace(b" .\n", b" <http://x/g> .\n")
RESULT = {
    "data": "wn18", "model": "TransE", "sampler": "nscaching", "start": "scratch",
    "protocol": "paper", "seed": 1, "device": "x", "epochs": 1, "train_seconds": 1.0,
    "epoch_seconds": 1.0, "seconds": 2.0, "settings": {"epochs": 1, "model": "TransE"},
    "test": {"mrr": 0.5, "mr": 3.0, "hits@10": 0.5},
}  # fmt: skip

TOKENS = [
    b"\0", b"\t", b"\r", b"\n", b"\r\n", b" ", b",", b'"', b"'", b"\\", b"\x1b[31m", b"\x7f",
    b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xc2\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\\ud800",
    "\u200fשלום".encode(), "👩‍👧".encode(), "\u3000".encode(), b"-1", b"0", b"2147483648",
    b"9" * 25, b"9" * 5000, b"1e999", b"NaN", b"null", b"true", b"[", b"]", b"{", b"}", b"[" * 3000,
    b"<", b">", b"_:", b"<<(", b"^^", b"@", b"#", b".", b";", b"=", b"a.b.c", b"[[x]]",
    b"x" * 70000,
]  # fmt: skip


WAYS = ["flip", "token", "number", "cut", "drop", "repeat", "splice", "bytes"]
NUMBERS = [b"-1", b"0", b"2147483647", b"1e400", b"-0.5", b"NaN", b"9" * 400, b"9" * 5000]


@dataclass(frozen=True)
class Reader:
    """One reader: the valid files it starts from, and what reads a damaged one."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]


def damaged(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Make bytes: a seed with some mutations, or now and then anything."""
    if random.randrange(20) == 0:
        return random.randbytes(random.randrange(300))
    data = random.choice(seeds)
    for _ in range(random.choice([1, 1, 1, 2, 3, 5])):
        at = random.randint(0, len(data))
        end = min(len(data), at + random.randint(0, 40))
        match random.choice(WAYS):
            case "number" if numbers := list(re.finditer(rb"[0-9]+", data)):
                number = random.choice(numbers)
                new = random.choice([*NUMBERS, b"%d" % random.getrandbits(random.randint(1, 70))])
                data = data[: number.start()] + new + data[number.end() :]
            case "flip" if at < len(data):
                bit = 1 << random.randrange(8)
                data = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            case "token":
                data = data[:at] + random.choice(TOKENS) + data[at:]
            case "cut":
                data = data[:at]
            case "drop":
                data = data[:at] + data[end:]
            case "repeat":
                data = data[:end] + data[at:end] * random.randint(1, 50) + data[end:]
            case "splice":
                other = random.choice(seeds)
                data = data[:at] + other[random.randint(0, len(other)) :]
            case "bytes":
                data = data[:at] + random.randbytes(random.randint(0, 8)) + data[end:]
    return data


def input_for(reader: Reader, random: Random) -> bytes:
    """Make an input of a reader; of a packed one, damaged inside or outside."""
    data = damaged(random, reader.seeds)
    if reader.name.endswith(".gz"):
        data = gzip.compress(data, 1, mtime=0)
        if random.randrange(2):
            data = damaged(random, (data,))
    return data


def is_sound(reader: Reader, data: bytes) -> bool:
    """Read; say whether it was accepted. Anything but that or one clear line is an error."""
    try:
        with at_most(SECONDS):
            reader.read(data)
    except UserError as error:
        text = str(error)
        assert text
        assert len(text.splitlines()) == 1, text
        assert len(text) < LONGEST, text[:LONGEST]
        return False
    return True


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End what takes longer with an error."""

    def late(*_: object) -> None:
        raise AssertionError(f"takes more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def readers(folder: Path) -> list[Reader]:
    """Return every reader of files; what they read is written below a folder."""
    return [*_files(folder), *_openke(folder / "openke"), *_run(folder / "run")]


def _files(folder: Path) -> Iterator[Reader]:
    def load(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            (folder / name).write_bytes(data)
            return KnowledgeGraph.load(folder / name, literals=len(data) % 2 == 1).fingerprint

        return read

    def labels(data: bytes) -> object:
        (folder / "labels.txt").write_bytes(data)
        return KnowledgeGraph.load(folder / "plain.tsv", labels=folder / "labels.txt")

    def config(data: bytes) -> object:
        (folder / "config.toml").write_bytes(data)
        return read_settings(folder / "config.toml"), read_record(folder / "config.toml")

    def results(data: bytes) -> object:
        table = TABLES["link-prediction"]
        (folder / f"{table.name}.jsonl").write_bytes(data)
        return Results(folder, table).list

    (folder / "plain.tsv").write_bytes(TSV)
    tables = {"a.tsv": TSV, "a.csv": CSV, "a.txt": SPACED}
    for name, data in (tables | {"a.nt": NT, "a.ttl": TTL, "a.nq": NQ}).items():
        seeds = (data, data.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + data)
        yield Reader(name, seeds, load(name))
        yield Reader(f"{name}.gz", seeds, load(f"{name}.gz"))
    for name in ("a.tsv", "a.txt"):
        yield Reader(f"{name} by all twins", (tables[name], UNUSUAL), _alike(load(name)))
    yield Reader("labels", (b"e1\tOne\ne2\tTwo words\n\ne3\tThree\n",), labels)
    for suffix, data in ((".tsv", TSV), (".csv", b'e0,r0,e1\n"\xc3\xa9 3",r1,e2\n')):
        yield Reader(f"negatives{suffix}", (data,), _negatives(folder / f"split{suffix}", suffix))
    line = json.dumps(RESULT).encode() + b"\n"
    yield Reader("results.jsonl", (line, line * 2), results)
    toml = b'data = "world"\nmodel = "TransE"\ndim = 4\nlr = 0.01\nsplit-seed = 1\nlabels = ""\n'
    yield Reader("config.toml", (toml, toml + b"[record]\nthreads = 1\n"), config)


def _negatives(folder: Path, suffix: str) -> Callable[[bytes], object]:
    folder.mkdir()
    (folder / "train.tsv").write_bytes(TSV)

    def read(data: bytes) -> object:
        (folder / f"valid_negatives{suffix}").write_bytes(data)
        graph = KnowledgeGraph.load(folder)
        assert set(graph.labelled) == {"valid"}
        return graph.labelled["valid"].triples

    return read


def _alike(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Read by the plain way, the quick one and the compiled one: all must come to the same."""
    plain: dict[tuple[object, str], object] = {
        (table, "quick_names"): lambda block, separator: None,
        (openke, "quick_rows"): lambda block, columns: None,
    }
    small: dict[tuple[object, str], object] = {(blocks, "BLOCK"): 40}
    ways = [plain, {}, small | {(name_table, "BULK_AFTER"): 2}, small | plain]

    def outcome(way: dict[tuple[object, str], object], data: bytes) -> object:
        with ExitStack() as stack:
            for (module, name), value in way.items():
                stack.enter_context(mock.patch.object(module, name, value))
            try:
                return read(data)
            except UserError as error:
                return error

    def read_all(data: bytes) -> object:
        first, *others = (outcome(way, data) for way in ways)
        assert [str(other) for other in others] == [str(first)] * 3
        if isinstance(first, UserError):
            raise first
        return first

    return read_all


def _openke(folder: Path) -> Iterator[Reader]:
    good = {
        "entity2id.txt": b"4\ne0\t0\ne 1\t1\ne2\t2\ne3\t3\n",
        "relation2id.txt": b"2\nr0 0\nr1 1\n",
        "train2id.txt": b"4\n0 1 0\n1 2 1\n2 3 0\n3 0 1\n",
        "test2id.txt": b"1\n0 2 1\n",
        "valid_neg.txt": b"0 1 0 1\n0 1 1 -1\n",
    }
    folder.mkdir()
    for name, data in good.items():
        (folder / name).write_bytes(data)

    def load(name: str) -> Callable[[bytes], object]:
        def read() -> object:
            graph = KnowledgeGraph.load(folder)
            truth = [(split, part.truth.tolist()) for split, part in graph.labelled.items()]
            return graph.fingerprint, truth

        return lambda data: _with(folder / name, data, read)

    for name, data in good.items():
        seeds = data, data.replace(b"\n", b"\r\n")
        yield Reader(f"openke {name} by all twins", seeds, _alike(load(name)))


def _run(folder: Path) -> Iterator[Reader]:
    source = folder.parent / "plain.tsv"
    settings = {"model": "TransE", "dim": 3, "epochs": 2, "n1": 2, "n2": 2, "kernels": "reference"}
    train(KnowledgeGraph.load(source), out=folder, threads=1, device="cpu", **settings)

    def load() -> object:
        run = Run.load(folder, "cpu")
        return run.train_seconds, run.result("test"), run.graph.fingerprint

    def chances() -> object:
        fitted = Run.load(folder, "cpu").calibration
        if fitted is None:
            return None
        found = fitted.probabilities(np.array([-1e300, -1.0, 2.0, 1e300]), np.arange(4) % 2, 0.1)
        assert ((found > 0) & (found < 1)).all()
        evidence = Evidence(found, np.arange(4, dtype=np.int32) % 2, -found, -found)
        for chances in fitted.answers.values():
            assert np.isfinite(chances.probabilities(found, evidence)).all()
        return found, len(fitted.answers)

    def reading(name: str) -> Callable[[bytes], object]:
        return lambda data: _with(folder / name, data, load)

    for name in ("config.toml", "metrics.jsonl", "vocabulary.json"):
        yield Reader(f"run {name}", ((folder / name).read_bytes(),), reading(name))
    path = folder / "calibration.json"
    values = {
        "format": 2, "epoch": Run.load(folder, "cpu").best_epoch, "triples": 9, "prior": 0.5,
        "negatives": "x", "everywhere": [1.0, 0.5], "by_relation": {"1": [0.0, -2.5]},
        "curve": [[-1.5, 2.0], [-1.0, 3.25]],
        "answers": {"2": {"constant": -1.5, "odds": 0.25, "log_rank": -1.0, "log_share": 0.5,
                          "by_relation": {"1": 0.75}, "queries": 12}},
    }  # fmt: skip
    seed = json.dumps(values).encode()
    path.write_bytes(seed)
    yield Reader("run calibration.json", (seed,), lambda data: _with(path, data, chances))
    for name in ("model", "cache", "triples"):
        file = f"{name}.safetensors"
        yield Reader(f"run {file}", ((folder / file).read_bytes(),), reading(file))


def _with(path: Path, data: bytes, read: Callable[[], object]) -> object:
    """Read with another content of a file, then put the old one back."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        return read()
    finally:
        path.write_bytes(before)


torch.set_num_threads(1)
