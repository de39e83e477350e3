"""What docs/security.md promises: no code in data, no way out of a folder, no name obeyed."""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers import TINY, random_graph
from nscaching import KnowledgeGraph, ProbeConfig, Run, UserError, train
from nscaching.cli.main import main
from nscaching.cli.verbs import VERBS
from nscaching.data import datasets
from nscaching.data.mapped_names import MappedNames
from nscaching.files import free_path
from nscaching.runs.escaping import is_obeyed, json_text, markdown, visible
from nscaching.runs.folder import FILES, MAP, default_out

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "nscaching").rglob("*.py"))

# The program.

# Modules that run code from data, listen, or unpack archives.
NEVER = {
    "pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml",
    "socket", "socketserver", "asyncio", "ssl", "xmlrpc", "wsgiref", "multiprocessing",
    "subprocess", "tarfile", "telnetlib", "ftplib", "smtplib", "requests", "aiohttp", "httpx",
}  # fmt: skip
NEVER_PARTS = {"http.server", "torch.distributed", "torch.hub", "torch.utils.tensorboard"}
# The explorer alone listens: its room, and the verb that starts it.
EXPLORER = {"socket", "asyncio", "http.cookies", "starlette", "uvicorn"}
# Processes of --processes talk to their parent alone, through a pipe without a name.
PROCESSES = {"multiprocessing"}
NEVER |= {"starlette", "uvicorn"}
NEVER_CALLED = {"system", "popen", "extractall", "mktemp", "read_pickle", "loads_pickle", "listen"}
CODE = {"eval", "exec", "compile", "__import__"}


# What processes of one training say to each other: they trust each other.
RANKS = {"torch.distributed"}
# Reads PyTorch's description of a checkpoint, by an unpickler that knows plain data alone.
CHECKPOINTS = {"torch.distributed", "pickle"}


def allowed(path):
    """Return the modules that a file may import."""
    if (path.parent.name == "verbs" and path.name == "serve.py") or "serve" in path.parts:
        return EXPLORER
    if path.name == "shard_checkpoints.py":
        return CHECKPOINTS
    if path.name in ("processes.py", "child.py"):
        return PROCESSES
    return RANKS if path.parent.name == "sharded" else set()


def is_in(module, parts):
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def faults(source, name="x.py", allowed=frozenset()):
    """Return what in a source file could run code from data, or open the machine to others."""
    found = []
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
        for module in modules:
            if is_in(module, allowed):
                continue
            if is_in(module, NEVER | NEVER_PARTS):
                found.append(f"imports {module}")
            web = module.startswith(("urllib.", "http")) and not module.startswith("urllib.parse")
            if web and name != "datasets.py":
                found.append(f"imports {module}")
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if called in CODE and name != "registry.py":
            found.append(f"calls {called}")
        if (
            last in NEVER_CALLED and called != "server.listen" * (allowed is EXPLORER)
        ) or given.get("shell") == "True":
            found.append(f"calls {called}")
        if called.startswith("pickle.") and last not in ("Unpickler", "UnpicklingError"):
            found.append(f"calls {called}")
        if called == "torch.load" and given.get("weights_only") != "True":
            found.append("torch.load without weights_only")
        arrays = called.startswith(("np.", "numpy.")) and last in ("load", "read_array")
        if arrays and given.get("allow_pickle") != "False":
            found.append(f"{called} without allow_pickle=False")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_file_runs_code_from_data(path):
    assert faults(path.read_text(encoding="utf-8"), path.name, allowed(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import socket", "from http import server",
        "import http.server", "import urllib.request", "torch.load(f)", "np.load(f)",
        "torch.load(f, weights_only=False)", "np.load(f, allow_pickle=True)", "eval(x)",
        "exec(x)", "os.system(x)", "run(x, shell=True)", "archive.extractall()", "import yaml",
        "import subprocess", "from torch import distributed", "server.listen(1)",
        "import multiprocessing", "from multiprocessing.connection import Client",
    ],
)  # fmt: skip
def test_the_watch_sees_what_it_is_to_see(source):
    assert faults(source)
    assert faults("import pickle; pickle.loads(x)", allowed=CHECKPOINTS)


def test_every_address_is_https():
    assert datasets.PUBLIC.startswith("https://")
    assert datasets.COMMIT in datasets.PUBLIC  # one commit: what is pinned does not move
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"(http|ftp)://(?!www\.w3\.org)\w", node.value), path


# Folders.


def test_pinned_files_stay_in_their_folders():
    for known in datasets.KNOWN.values():
        for name in (f"{known.folder}.txt", *known.sha256):
            assert re.fullmatch(r"[\w-]+\.txt", name)


@pytest.mark.parametrize("name", ["../wn18", "/etc", "wn18/..", "..", "", "wn18\0", "openke/WN18"])
def test_a_data_set_has_no_path(name):
    assert datasets.find(name) is None
    with pytest.raises(UserError, match="unknown data set"):
        datasets.fetch(name)


def test_links_in_a_mirror_are_not_copied(tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    folder = tmp_path / "mirror" / "openke" / "FB13"
    folder.mkdir(parents=True)
    for file in datasets.KNOWN["fb13"].sha256:
        (folder / file).symlink_to(secret)
    monkeypatch.setenv("NSCACHING_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("NSCACHING_HOME", str(tmp_path / "home"))
    with pytest.raises(UserError, match="wrong content in "):
        datasets.fetch("fb13")
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/../../b", "..", ".hidden", "a\0b\nc"])
def test_a_graph_names_no_folder_outside_of_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = random_graph()
    graph.name = name
    out = default_out(graph, train(graph, **TINY).config)
    assert out.parent == Path("runs")
    assert out.resolve().parent == tmp_path / "runs"
    assert not out.name.startswith(".")


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    graph = random_graph()
    graph.entities = MappedNames.of(graph.entities)  # which have a file of their own
    train(graph, out=path, probes=ProbeConfig(watch=1), **TINY)
    return path


READ = sorted(FILES - {"README.md", "training.png", "report.html", *MAP.values()})


@pytest.mark.parametrize("file", READ)
def test_a_run_folder_is_not_left_by_links(plain_run, tmp_path, file):
    copy = shutil.copytree(plain_run, tmp_path / "run")
    (copy / file).rename(tmp_path / "elsewhere")
    (copy / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{file} is a link that leads out of its folder"):
        Run.load(copy, "cpu")
    (copy / file).unlink()
    (tmp_path / "elsewhere").rename(copy / "within")
    (copy / file).symlink_to("within")
    Run.load(copy, "cpu")


@pytest.mark.parametrize("file", READ)
def test_a_pipe_in_a_run_folder_is_not_waited_for(plain_run, tmp_path, file):
    copy = shutil.copytree(plain_run, tmp_path / "run")
    (copy / file).unlink()
    os.mkfifo(copy / file)
    optional = {
        "cache.safetensors": "sampler_state",
        "scores.jsonl": "scores",
        "calibration.json": "calibration",
    }
    if file in optional:  # which a run need not have
        assert not getattr(Run.load(copy, "cpu"), optional[file])
        return
    with pytest.raises(UserError, match=r"is not a file|it has no config|holds no model"):
        Run.load(copy, "cpu")


def test_what_is_written_follows_no_links(plain_run, tmp_path):
    copy = shutil.copytree(plain_run, tmp_path / "run")
    outside = tmp_path / "outside"
    (copy / "report.html").unlink()
    (copy / "report.html").symlink_to(outside)
    (copy / "report.html.partial").symlink_to(outside)
    run = Run.load(copy, "cpu")
    run.report(overwrite=True)
    assert not outside.exists()
    (copy / "v.npz.partial").symlink_to(outside)
    run.export(copy / "v.npz")
    assert not outside.exists()
    assert not free_path(copy / "report.html.partial").is_symlink()


# Names.

PAYLOADS = [
    "\x1b]0;pwned\x07", "\x1b[2J\x1b[31mred", "\x9b31mc1", "back\x08\x08space", "carriage\rreturn",
    "new\nline", "tab\there", "\u202eright to left", "\u2066isolate\u2069", "bom\ufeff",
    "tag\U000e0041\U000e0042", "line\u2028break", "del\x7f", "null\x00byte", "next\x85line",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[bold red]markup[/]",
    "| cell | cell |", "[link](javascript:alert(1))", "# heading", "`code`", "$x$ {y} %s",
]  # fmt: skip
WORLD = [f"{payload}{i}" for i, payload in enumerate(PAYLOADS)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Write a graph of names that a reader takes and nobody wants, in a folder of such a name."""
    folder = tmp_path_factory.mktemp("data") / "\x1b]0;pwned\x07 <b> *x* \u202e"
    folder.mkdir()
    names = [name for name in WORLD if not re.search(r"[\x00-\x1f\x7f-\x9f]", name)]
    random = np.random.default_rng(0)
    for split, count in (("train", 200), ("valid", 30), ("test", 30)):
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            for h, r, t in random.integers(len(names), size=(count, 3)):
                writer.writerow([names[h], names[-1 - r % 5], names[t]])
    return folder


@pytest.fixture(scope="module")
def received(tmp_path_factory):
    """Write a run folder that others may have made: its names hold anything."""
    n, random = len(WORLD), np.random.default_rng(0)
    splits = {
        split: np.column_stack([random.integers(n, size=(count, 3))]) % [n, 5, n]
        for split, count in (("train", 200), ("valid", 30), ("test", 30))
    }
    graph = KnowledgeGraph.from_arrays(
        WORLD, WORLD[:5], splits, name=PAYLOADS[0], labels={WORLD[2]: PAYLOADS[1]}, notes=PAYLOADS
    )
    path = tmp_path_factory.mktemp("runs") / "\x1b]0;run\x07\u202e"
    train(graph, out=path, **TINY)
    return path


def obeyed(text):
    return {character for character in text if character != "\n" and is_obeyed(character)}


def test_no_verb_lets_a_terminal_obey_a_name(hostile, received, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    tiny = shlex.split("--epochs 1 --dim 4 --n1 4 --n2 4 --threads 1 --device cpu --overwrite")
    run, name, relation = str(received), WORLD[1], WORLD[0]
    graph = Run.load(received, "cpu").graph
    key = graph.entities[graph.train[0, 0]], graph.relations[graph.train[0, 1]]
    (tmp_path / "bad.tsv").write_text(f"{name}\tr\tb\n")
    (tmp_path / "bad.toml").write_text('pretrain = "\\u001b]0;pwned\\u0007\\u202e"\n')
    calls = [
        ["datasets"],
        ["presets"],
        ["train", str(hostile), *tiny, "--dry-run"],
        ["train", str(hostile), *tiny, "--out", f"{name}\u202e"],
        ["train", "--config", f"{run}/config.toml", "--help"],
        ["train", "bad.tsv"],
        ["train", "--config", "bad.toml", "--help"],
        ["evaluate", run],
        ["evaluate", run, "--task", "relations"],
        ["classify", run],
        ["classify", run, "--task", "entities", "--relation", relation],
        ["classify", run, "--task", "linking", "--relation", relation],
        ["predict", run, "--head", name, "--relation", relation, "--known", "mark"],
        ["predict", run, "--head", name, "--tail", name],
        ["predict", run, "--head", name, "--relation", relation, "--tail", name],
        ["predict", run, "--head", f"{name}?", "--relation", relation],
        ["explain", run, "--head", name, "--relation", relation, "--tail", WORLD[2]],
        ["explain", run, "--head", f"{name}?", "--relation", relation, "--tail", name],
        ["extend", run, "bad.tsv", "--out", f"{name}.more"],
        ["neighbours", run, name],
        ["inspect", run, "--head", key[0], "--relation", key[1]],
        ["inspect", run, "--head", f"{name}?", "--relation", relation],
        ["tune", str(hostile), *tiny[:-3], "--trials", "1", "--out", f"{name}\u202e"],
        ["figures", "gradients", run, "--out", f"{name}/", "--overwrite"],
        ["figures", "distribution", run, "--out", f"{name}/", "--overwrite"],
        ["export", run, "--to", f"{name}.npz", "--overwrite"],
        ["compare", run, run, "--plot", "x\x1b[31m.png", "--overwrite"],
        ["report", run, "--overwrite"],
        ["serve", f"{run}\x1b[31m", "--port", "0"],
        ["auto", str(hostile), "--minutes", "0.001", "--out", f"{name}.auto"],
        ["audit", str(hostile), "--page", "page.html", "--overwrite"],
        ["audit", str(hostile), "--drop-relations", f"{relation}?"],
        ["audit", str(hostile), "--clean", f"{name}.clean"],
        ["relations", run],
        ["entities", run],
        ["entities", run, f"{name}?"],
        ["reproduce", "link-prediction", "--data", name],
        ["train", f"{name}\x1b[31m"],
        ["evaluate", name],
        [name],
        ["train", str(hostile), "--model", name],
        ["train", str(hostile), f"--{name}"],
    ]
    assert {call[0] for call in calls} >= set(VERBS) - {"demo"}
    for words in (words for call in calls for words in (call, [*call, "--json"])):
        with contextlib.suppress(SystemExit):
            main(words)
        out, err = capsys.readouterr()
        assert out or err, words
        assert obeyed(out) == set(), (words, out)
        assert obeyed(err) == set(), (words, err)
        if out.startswith("{"):
            json.loads(out)


def test_a_terminal_with_colours_is_not_fooled(hostile, received, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    tiny = shlex.split("--epochs 1 --dim 4 --n1 4 --n2 4 --threads 1 --device cpu --out run")
    main(["train", str(hostile), *tiny])
    main(["predict", str(received), "--relation", WORLD[0], "--tail", WORLD[0]])
    said = "".join(capsys.readouterr())
    assert "\x1b[" in said  # the program's own
    for raw in ("\x1b]", "\x07", "\x1b[2J\x1b[31mred", "\x9b", "\u202e", "\x85", "\u2028"):
        assert raw not in said


def test_the_card_shows_names_as_text(received):
    card = (received / "README.md").read_text(encoding="utf-8")
    assert obeyed(card) == set()
    assert not re.search(r"<\w", card)
    assert not re.search(r"(?<!\\)\]\(javascript", card)
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert len(headings) == 5  # the card's own
    assert len(re.findall(r"(?<!\\)\]\(", card)) == 1  # the picture


def test_escapes():
    for text in PAYLOADS:
        assert obeyed(visible(text)) == set()
        assert "\n" not in visible(text)
        shown = json_text(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
        assert obeyed(shown) == set()
        assert json.loads(shown) == {text: [text]}
        assert "<" not in markdown(text)
    for kept in ("naïve", "שלום", "👩\u200d👧", "می\u200cخواهم", "日本", "a b", "\\x1b"):
        assert visible(kept) == kept
        assert json_text(f'"{kept}"') == f'"{kept}"'
    assert visible("\x1b\n\u202e\U000e0041") == r"\x1b\n\u202e\U000e0041"
    assert markdown("a_b *c* [d](e) <f> & |") == r"a\_b \*c\* \[d\](e) &lt;f&gt; &amp; \|"


# The page.


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 12
    for file, test in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file}::{test}"
