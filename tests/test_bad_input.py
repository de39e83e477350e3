"""Bad input: one clear line on standard error, exit code 2, and nothing of the user's is lost."""

from __future__ import annotations

import ast
import gzip
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import nscaching
from nscaching import KnowledgeGraph, UserError, train
from nscaching.cli.main import main

TINY = shlex.split("--model TransE --epochs 1 --dim 4 --n1 4 --n2 4 --threads 1")
GOOD = "".join(f"e{i}\tr{i % 2}\te{(i * i + 3) % 9}\n" for i in range(9)) + "e1\tr0\te8\n"
CUT = gzip.compress(GOOD.encode(), mtime=0)[:-9]  # without a time: it is part of a test's name


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a run of a graph with all three splits."""
    folder = tmp_path_factory.mktemp("data") / "toy"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.tsv").write_text(GOOD)
    main(["train", str(folder), *TINY, "--out", str(folder.parent / "run")])
    return folder.parent / "run"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder that holds a good file and a folder, and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)  # standard error is no terminal here
    (tmp_path / "good.tsv").write_text(GOOD)
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.fixture
def run(trained, here):
    """Return a copy of the run."""
    shutil.copytree(trained, here / "run")
    return here / "run"


@pytest.fixture
def fails(capsys):
    """Return a function that runs the command line and returns the one line it complains with."""

    def call(*words, loaded=False):
        """With ``loaded``, what was loaded is said before."""
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, "")
        said = err.removesuffix("\n").split("\n")
        complaints = [line for line in said if line.startswith("nscaching: ")]
        assert complaints == said[-1:]
        assert loaded or len(said) == 1
        assert complaints[0].isprintable()
        return complaints[0].removeprefix("nscaching: ")

    return call


def tree(folder):
    """Return every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


# Words.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nope", "unknown verb 'nope'; known: demo, datasets, auto, train, tune, evaluate, "),
        ("--nope", "unknown verb '--nope'; known: "),
        ("train", "say what to train on: a known data set, a folder or a file"),
        ("evaluate", "Missing from nscaching evaluate: RUN"),
        ("predict --head a", "Missing from nscaching predict: RUN"),
        ("compare", "say which runs to compare"),
        ("train good.tsv --nope", "Unrecognized options: --nope; see nscaching train --help"),
        (
            "train good.tsv --epoch 3",
            "Unrecognized options: --epoch, 3; did you mean --epochs?; see",
        ),
        ("predict run --haed=x", "Unrecognized options: --haed=x; did you mean --head?; see "),
        ("predct run", "unknown verb 'predct'; known: demo, "),
        ("train good.tsv --nope=3", "Unrecognized options: --nope"),
        ("train good.tsv --conf x.toml", "Unrecognized options: --conf"),
        ("train good.tsv more.tsv", "Unrecognized options: more.tsv"),
        ("evaluate run more", "Unrecognized options: more; see nscaching evaluate --help"),
        ("train good.tsv --dim", "Missing value for argument '--dim'"),
        ("train good.tsv --config", "Missing value for argument '--config'"),
        ("train good.tsv --dim x", "--dim takes a whole number, not 'x';"),
        ("train good.tsv --dim 1.5", "--dim takes a whole number, not '1.5';"),
        ("train good.tsv --negatives x", "--negatives takes a whole number, not 'x';"),
        ("train good.tsv --penalty x", "--penalty takes a number, not 'x';"),
        ("train good.tsv --lr high", "--lr takes a number, not 'high';"),
        ("train good.tsv --norm 3", "invalid choice '3' for argument '--norm'. Expected one of"),
        ("train good.tsv --draw best", "invalid choice 'best' for argument '--draw'"),
        ("train good.tsv --device tpu", "invalid choice 'tpu' for argument '--device'"),
        ("evaluate run --split dev", "invalid choice 'dev' for argument '--split'"),
        ("evaluate run --ties lucky", "invalid choice 'lucky' for argument '--ties'"),
        ("classify run --split train", "invalid choice 'train' for argument '--split'"),
        ("predict run --known show", "invalid choice 'show' for argument '--known'"),
        ("datasets more", "Unrecognized options: more; see nscaching datasets --help"),
        ("demo --epochs 0", "--epochs must be at least 1, not 0"),
        ("demo --out folder", "folder exists already; choose another --out"),
        ("demo --out good.tsv", "good.tsv exists already; choose another --out"),
    ],
)
def test_words(fails, here, words, message):
    before = tree(here)
    assert fails(*words.split()).startswith(message)
    assert tree(here) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        *((f"--{name} {value}", f"--{name} must be at least 1, not {value}")
          for name in ("dim", "epochs", "batch-size", "n2", "tail") for value in (0, -3)),
        *((f"--{name} -1", f"--{name} must be at least 0, not -1")
          for name in ("lazy", "validate-every", "patience", "seed", "threads", "split-seed")),
        ("--n1 0", "--n1 must be at least 1, not 0: only softmax does without a cache"),
        ("--n1 -3", "--n1 must be at least 0, not -3"),
        ("--seed 99999999999999999999", "--seed must be at most 2147483647, not 9999"),
        ("--lr 0", "--lr must be a positive number, not 0.0"),
        ("--lr nan", "--lr must be a positive number, not nan"),
        ("--temperature 0", "--temperature must be a positive number, not 0.0"),
        ("--margin -1", "--margin must be zero or a positive number, not -1.0"),
        ("--penalty inf", "--penalty must be zero or a positive number, not inf"),
        ("--model TransX", "unknown model 'TransX'; known: ANALOGY, ComplEx, "),
        ("--sampler cache", "unknown sampler 'cache'; known: bernoulli, igan, kbgan, none, "),
        ("--model no.such:Thing", "cannot load model 'no.such:Thing': No module named 'no'"),
        ("--sampler :", "cannot load sampler ':': "),
        ("--labels gone.tsv", "{here}/gone.tsv: cannot read it: No such file or directory"),
        ("--labels folder", "{here}/folder: cannot read it: Is a directory"),
        ("--out good.tsv", "good.tsv exists already; choose another --out, or say --overwrite"),
        ("--out folder", "folder exists already; choose another --out, or say --overwrite"),
        ("--out folder --overwrite", "folder is not a run folder, so it is not overwritten"),
        ("--out good.tsv --overwrite", "good.tsv is not a run folder, so it is not overwritten"),
        ("--out ~no-such-user-here/x", "~no-such-user-here/x: there is no such home folder"),
        ("--config gone.toml", "gone.toml: cannot read it: No such file or directory"),
        ("--config folder", "folder: cannot read it: Is a directory"),
        ("--config good.tsv", "good.tsv: cannot read it: Expected '=' after a key"),
    ],
)  # fmt: skip
def test_settings(fails, here, flags, message):
    before = tree(here)
    found = fails("train", "good.tsv", *TINY, *flags.split())
    assert found.startswith(message.format(here=here.resolve()))
    assert tree(here) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--n1 10", "--n1 10 is larger than the number of entities, 9"),
        ("--objective softmax --sampler self-adversarial",
         "--objective softmax does not go with self-adversarial: give --sampler bernoulli, "),
        ("--objective softmax --negatives 2",
         "--objective softmax draws no single negatives: leave out --negatives"),
        ("--objective softmax --filter-known",
         "--objective softmax draws no single negatives: leave out --filter-known"),
        ("--objective softmax --candidates slots",
         "--objective softmax caches each entity once: leave out --candidates slots"),
        ("--reciprocal --objective margin",
         "--reciprocal goes with --objective softmax, 1vsall or kvsall, not with margin"),
        ("--objective softmax --probe-repeats 1",
         "--probe-repeats: --objective softmax draws no single negatives"),
        ("--objective softmax --n1 0 --tail 4 --snapshots 1", "--snapshots: --n1 0 keeps no cache"),
        ("--pretrain gone", "gone does not exist"),
        ("--pretrain folder", "folder is not a run folder: it has no config.toml"),
        ("--pretrain run", "--pretrain run: its entities: not the same"),
        ("--pretrain run --dim 5", "--pretrain run: its dim: 4, here 5"),
        ("--pretrain run --model TransH", "--pretrain run: its model: TransE, here TransH"),
        ("--out good.tsv/new", "good.tsv/new: cannot write the run folder: Not a directory"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_data(fails, run, here, flags, message):
    (here / "good.tsv").write_text(GOOD.replace("e8", "E8"))
    before = tree(here)
    found = fails("train", "good.tsv", *TINY, *flags.split(), loaded=True)
    assert found.startswith(message)
    assert tree(here) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dim = ", "bad.toml: cannot read it: Invalid value"),
        ("dims = 3", "bad.toml: unknown key 'dims'; nearest: dim"),
        ("dim = '3'", "bad.toml: dim must be of type int, not '3'"),
        ("dim = 0", "bad.toml: --dim must be at least 1, not 0"),
        ("norm = 3", "unknown value of bad.toml: norm: '3'; known: 1, 2"),
        ("model = 'TransX'", "unknown model 'TransX'; known: "),
        ("data = 7", "bad.toml: data must be of type str, not 7"),
        ("split_seed = 1.5", "bad.toml: split_seed must be of type int, not 1.5"),
        ("labels = 'gone.tsv'", "{here}/gone.tsv: cannot read it: No such file or directory"),
        (b"\xff\xfe", "bad.toml: cannot read it: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_bad_configuration(fails, here, text, message):
    (here / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    found = fails("train", "good.tsv", "--config", "bad.toml", "--out", "new")
    assert found.startswith(message.format(here=here.resolve()))
    assert not (here / "new").exists()


# Data.


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("gone.tsv", "gone.tsv: no such file or folder"),
        ("folder/gone", "folder/gone: no such file or folder"),
        (
            "wn18r",
            "unknown data set 'wn18r'; known: world, wn18, wn18rr, fb15k, fb15k237, fb13 (did "
            "you mean wn18rr?); and no file or folder is called so",
        ),
        ("folder", "folder: holds no train.tsv, train.csv, train.txt, train.nt, train.ttl, "),
    ],
)
def test_data_that_are_not_there(fails, here, where, message):
    assert fails("train", where, *TINY, "--out", "new").startswith(message)
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("bad.tsv", b"", "bad.tsv: the file is empty"),
        ("bad.tsv", b"a\tr\tb\na\tr\n", "bad.tsv:2: expected 3 columns (head, relation, tail), "
                                        r"found 2: 'a\tr'"),
        ("bad.tsv", b"a\tr\tb\tc\n", r"bad.tsv:1: expected 3 columns (head, relation, tail), "
                                     r"found 4: 'a\tr\tb\tc'"),
        ("bad.tsv", b"a\tr\tb\na\tr\t\xe9\n", "bad.tsv:2: not UTF-8: "),
        ("bad.tsv", b"a\tr\tb\0\n", r"bad.tsv:1: control character '\x00' in 'a\tr\tb\x00'"),
        ("bad.tsv", b"a\tr\t\x1b[2Jb\n", r"bad.tsv:1: control character '\x1b' in "),
        ("bad.csv", b'a,r,"b\n', "bad.csv:1: not valid CSV"),
        ("bad.tsv.gz", b"a\tr\tb\n", "bad.tsv.gz: cannot read it: Not a gzipped file"),
        ("bad.tsv.gz", CUT, "bad.tsv.gz: cannot read it: Compressed"),
    ],
)  # fmt: skip
def test_a_bad_file(fails, here, name, data, message):
    (here / name).write_bytes(data)
    assert fails("train", name, *TINY, "--out", "new").startswith(message)
    for split in ("valid", "test"):  # and as a part of a folder
        (here / "folder" / "train.tsv").write_text(GOOD)
        (here / "folder" / name.replace("bad", split)).write_bytes(data)
        found = fails("train", "folder", *TINY, "--out", "new")
        assert found.startswith("folder/" + message.replace("bad", split))
        (here / "folder" / name.replace("bad", split)).unlink()
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("entity2id.txt", "3\na\t0\nb\t1\n", "says 3 names, but 2 follow"),
        ("entity2id.txt", "999999999999\na\t0\nb\t1\n", "says 999,999,999,999 names, but 2 follow"),
        ("train2id.txt", "5\n0 1 0\n", "says 5 triples, but 1 follow"),
        ("train2id.txt", "1\n0 2 0\n", "tail id 2 is out of range 0…1"),
        ("train2id.txt", "1\n0 1 -1\n", "relation id -1 is out of range 0…0"),
        ("train2id.txt", "1\n0 1\n", "expected 3 integers, found 2: '0 1'"),
        ("valid_neg.txt", "0 1 0 2\n", "the label must be 1 or -1, not 2"),
    ],
)
def test_a_bad_openke_folder(fails, here, name, text, message):
    files = {
        "entity2id.txt": "2\na\t0\nb\t1\n",
        "relation2id.txt": "1\nr\t0\n",
        "train2id.txt": "1\n0 1 0\n",
    }
    for file, content in (files | {name: text}).items():
        (here / "folder" / file).write_text(content)
    line = 1 if "follow" in message or "neg" in name else 2
    assert fails("train", "folder", *TINY) == f"folder/{name}:{line}: {message}"
    assert not (here / "runs").exists()


def test_no_network(fails, monkeypatch):
    with socket.socket() as closed:  # bound and not listening: nobody else can take the port
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("NSCACHING_MIRROR", url)
        monkeypatch.setenv("NSCACHING_HOME", "home")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        found = fails("train", "wn18", *TINY)
    assert found.startswith(f"cannot read {url}/openke/WN18/")
    assert "Connection refused; NSCACHING_MIRROR may name" in found


def test_a_checksum_that_does_not_match(fails, here, mirror, monkeypatch):
    shutil.copytree(mirror / "openke" / "WN18RR", here / "mirror" / "openke" / "WN18RR")
    with (here / "mirror" / "openke" / "WN18RR" / "test2id.txt").open("a") as file:
        file.write("\n")
    monkeypatch.setenv("NSCACHING_MIRROR", "mirror")
    monkeypatch.setenv("NSCACHING_HOME", "home")
    found = fails("train", "wn18rr", *TINY)
    assert found.startswith("wrong content in test2id.txt: expected SHA-256 ")
    assert not list((here / "home").rglob("*.txt"))


# Runs.


@pytest.mark.parametrize("verb", ["evaluate", "classify", "predict", "compare"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone", "gone does not exist"),
        ("folder", "folder is not a run folder: it has no config.toml"),
        ("good.tsv", "good.tsv is not a run folder: it has no config.toml"),
        ("~no-such-user-here/x", "~no-such-user-here/x: there is no such home folder"),
    ],
)
def test_a_run_that_is_not_there(fails, here, verb, path, message):
    before = tree(here)
    assert fails(verb, path) == message
    assert fails(verb, path, "--json") == message
    assert tree(here) == before


@pytest.mark.parametrize("verb", ["evaluate", "classify", "predict", "compare"])
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("model.safetensors", b"", "run/model.safetensors: cannot read it: "),
        ("model.safetensors", None, "run holds no model: its training did not get that far"),
        ("vocabulary.json", b"{", "run/vocabulary.json: cannot read it: "),
        ("vocabulary.json", None, "run/vocabulary.json: cannot read it: No such file"),
        ("triples.safetensors", b"x", "run/triples.safetensors: cannot read it: "),
        ("metrics.jsonl", b"{}\n", "run/metrics.jsonl:1: not a line of metrics"),
        ("metrics.jsonl", b'{"epoch"', "run/metrics.jsonl:1: cannot read it: "),
        ("config.toml", b"dim = 'x'", "run/config.toml: dim must be of type int, not 'x'"),
        ("config.toml", b"dim = 9", "run: model and configuration differ: "),
    ],
)
def test_a_damaged_run(fails, run, verb, name, data, message):
    if data is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(data)
    before = tree(run)
    assert fails(verb, "run").startswith(message)
    assert tree(run) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give at least two of head, relation and tail"),
        ("--head e1", "give at least two of head, relation and tail"),
        ("--relation r0", "give at least two of head, relation and tail"),
        ("--head e1 --relation r0 --top 0", "--top must be at least 1, not 0"),
        ("--head e1 --relation r0 --top -1", "--top must be at least 1, not -1"),
        ("--head nobody --relation r0", "unknown entity 'nobody'; known: e0, e3, e1, "),
        ("--head e1 --tail E9", "unknown entity 'E9'; known: e0, "),
        ("--head e1 --relation r7", "unknown relation 'r7'; known: r0, r1"),
        ("--head= --relation r0", "give at least two of head, relation and tail"),
    ],
)
def test_predict(fails, run, words, message):
    assert fails("predict", "run", *words.split()).startswith(message)


def test_predict_names_the_nearest_of_many(fails, here):
    text = "".join(f"person {i}\tknows\tperson {i + 1}\n" for i in range(30))
    (here / "people.tsv").write_text(text)
    main(["train", "people.tsv", *TINY, "--out", "people"])
    found = fails("predict", "people", "--head", "persn 7", "--relation", "knows")
    assert found.startswith("unknown entity 'persn 7'; nearest: person 7, ")


def test_evaluate_and_classify(fails, run, here):
    assert fails("evaluate", "run", "--memory-mb", 0) == "--memory-mb must be at least 1, not 0"
    (here / "few.tsv").write_text("a\tr\tb\nb\tr\tc\nc\tr\td\nd\tr\ta\n")
    main(["train", "few.tsv", *TINY, "--out", "few"])
    for verb in ("evaluate", "classify"):
        assert " split of few is empty: there is nothing to " in fails(verb, "few")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(fails, run):
    message = "--device cuda: PyTorch finds no CUDA device here; use cpu or auto"
    assert fails("evaluate", "run", "--device", "cuda") == message
    assert fails("train", "good.tsv", *TINY, "--device", "cuda") == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--plot good.tsv", "good.tsv exists already; choose another --plot, or say --overwrite"),
        ("--plot new.txt", "--plot new.txt: the name must end in .png, .svg or .pdf"),
        ("--plot good.tsv --overwrite", "--plot good.tsv: the name must end in .png, .svg or .pdf"),
        ("--plot good.tsv/a.png", "cannot write good.tsv/a.png: File exists"),
        ("--plot taken.png --overwrite", "cannot write taken.png: Is a directory"),
        ("--plot ~no-such-user-here/a.png", "~no-such-user-here/a.png: there is no such home"),
        ("gone", "gone does not exist"),
    ],
)
def test_compare(fails, run, here, words, message):
    (here / "taken.png").mkdir()
    before = tree(here)
    assert fails("compare", "run", *words.split()).startswith(message)
    assert tree(here) == before


def test_figures_that_are_not_numbers_are_no_json(fails, run):
    path = run / "model.safetensors"
    tables = {name: torch.full_like(table, np.nan) for name, table in load_file(path).items()}
    save_file(tables, path, {"epoch": "1"})
    question = ["--head", "e1", "--relation", "r0"]
    for words in (["predict", "run", *question], ["evaluate", "run"], ["classify", "run"]):
        assert "its training diverged" in fails(*words, "--json")
    metrics = (run / "metrics.jsonl").read_text().replace('"mrr": 0', '"mrr": NaN, "x": 0')
    (run / "metrics.jsonl").write_text(metrics)
    assert "a figure is not a number" in fails("compare", "run", "--json")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (OSError(28, "No space left on device", "x"), "[Errno 28] No space left on device: 'x'"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[enforce fail at x.cpp]\ncan't allocate memory"), "[enforce fail at x.cpp]"),
        (torch.OutOfMemoryError("CUDA out of memory."), "CUDA out of memory."),
    ],
)
def test_a_full_disk_or_memory_is_one_line_too(fails, run, monkeypatch, broken, message):
    def fail(*_):
        raise broken

    monkeypatch.setattr("nscaching.runs.run.Run.load", fail)
    assert fails("evaluate", "run").startswith(message)


def test_a_name_that_is_too_long_for_the_disk(fails):
    assert "File name too long" in fails("train", "x" * 5000, *TINY)
    assert "File name too long" in fails("train", "good.tsv", *TINY, "--out", "x" * 500)


def test_a_mistake_of_the_program_keeps_its_traceback(run, monkeypatch):
    def fail(*_):
        raise RuntimeError("a mistake")

    monkeypatch.setattr("nscaching.runs.run.Run.load", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        main(["evaluate", "run"])


def test_a_message_is_one_line_whatever_is_in_it(fails):
    assert (
        fails("train", "two\nlines\x1b[2J.tsv") == r"two lines\x1b[2J.tsv: no such file or folder"
    )
    assert fails("train", "two  blanks.tsv").startswith("two  blanks.tsv: ")


# What is odd but no error.


def test_repeats_and_unseen_names_are_said_once(here, ask, capsys):
    for split, text in (("train", GOOD * 2), ("valid", "new\tr0\te1\n"), ("test", "e1\tq\te2\n")):
        (here / "folder" / f"{split}.tsv").write_text(text)
    main(["train", "folder", *TINY, "--out", "new", "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["test"]["mrr"] > 0
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: 10 duplicate triples dropped from train",
        "note: 1 entity of valid/test is not in train (such as 'new'); it stays in the ranking",
        "note: 1 relation of valid/test is not in train (such as 'q'); it stays in the ranking",
        "note: --n2 asks for negatives one by one; the default is a softmax",
    ]
    assert len(KnowledgeGraph.load("folder").entities) == 10
    assert list(ask("evaluate", "new")["by_relation"]) == ["q"]


def test_debug_shows_the_traceback():
    with pytest.raises(UserError, match=r"gone\.tsv: no such file or folder"):
        main(["train", "gone.tsv", "--debug"])


# As a program of its own.


def test_the_program(here):
    (here / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    command = [sys.executable, "-m", "nscaching", "train", "bad.tsv", "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"nscaching: bad.tsv:2: expected 3 columns ")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.endswith(b"\n")


def test_the_program_with_debug():
    command = [sys.executable, "-m", "nscaching", "train", "gone.tsv", "--debug"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Traceback")
    assert done.stderr.endswith(b"UserError: gone.tsv: no such file or folder\n")


# The same mistake in Python.


def test_messages_name_flags_on_the_command_line_and_parameters_in_python(fails, run):
    words = ["train", "good.tsv", *TINY, "--batch-size", 0]
    assert fails(*words) == "--batch-size must be at least 1, not 0"
    graph = KnowledgeGraph.load("good.tsv")
    with pytest.raises(ValueError, match=r"batch_size must be at least 1, not 0$"):
        train(graph, batch_size=0)
    with pytest.raises(UserError, match=r"^n1 10 is larger than .*; give a smaller n1$"):
        train(graph, n1=10, device="cpu")
    assert "give a smaller --n1" in fails("train", "good.tsv", "--n1", 10, loaded=True)
    run = train(graph, epochs=1, dim=4, n1=4, n2=4, device="cpu", out="mine")
    with pytest.raises(
        UserError, match=r"^mine exists already; choose another out, or say overwrite=True$"
    ):
        train(graph, epochs=1, dim=4, n1=4, n2=4, device="cpu", out="mine")
    run.export("v.npz")
    with pytest.raises(UserError, match=r"choose another path, or say overwrite=True$"):
        run.export("v.npz")
    said = fails("export", "run", "--to", "v.npz")
    assert said.endswith("choose another --to, or say --overwrite")


def test_no_message_of_the_library_writes_a_flag_by_hand():
    """But commands that a message quotes, and pages that are written for the command line."""
    library = Path(nscaching.__file__).parent
    pages = {"runs/card.py", "runs/report/page.py"}
    commands = {"paper/figures/sizes.py", "paper/figures/_logs.py"}
    for path in library.rglob("*.py"):
        name = str(path.relative_to(library))
        if name.startswith("cli/") or name in pages | commands:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("Error"):
                continue
            text = ast.unparse(node)
            if "nscaching " not in text:
                assert not re.search(r"(?<![\w-])--[a-z]", text), f"{name}:{node.lineno}: {text}"
