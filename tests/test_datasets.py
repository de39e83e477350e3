"""The known data sets: real files, and real sockets on the loopback interface."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest

from nscaching.data import datasets
from nscaching.errors import UserError

FILES = {
    "entity2id.txt": b"2\na\t0\nb\t1\n",
    "relation2id.txt": b"1\nr\t0\n",
    "train2id.txt": b"25000\n" + b"0 1 0\n" * 25000,  # several blocks
    "valid2id.txt": b"1\n0 1 0\n",
    "test2id.txt": b"1\n1 0 0\n",
}
BAD = b"X" + FILES["valid2id.txt"][1:]
SHA = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty cache folder, and let "toy" be the name of a known data set."""
    pinned = tmp_path / "pinned.sha256"
    pinned.write_text("".join(f"{SHA[name]}  TOY/{name}\n" for name in FILES))
    toy = datasets.KnownDataset("toy", "TOY", "Toy", 2, 1, 25000, 1, 1)
    monkeypatch.setitem(datasets.KNOWN, "toy", toy)
    monkeypatch.setattr(datasets, "PINNED", pinned)
    monkeypatch.setenv("NSCACHING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    datasets.checksums.cache_clear()
    yield tmp_path / "home"
    datasets.checksums.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a mirror that is a folder, named by NSCACHING_MIRROR."""
    root = tmp_path / "my mirror"  # the blank is quoted in a file URL
    (root / "openke" / "TOY").mkdir(parents=True)
    for name, data in FILES.items():
        (root / "openke" / "TOY" / name).write_bytes(data)
    monkeypatch.setenv("NSCACHING_MIRROR", str(root))
    return root


def whole(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def unannounced(handler, body):
    handler.send_response(200)
    handler.end_headers()
    with suppress(ConnectionError):  # the client may have had enough
        handler.wfile.write(body)


def truncated(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) + 10))
    handler.end_headers()
    handler.wfile.write(body)


def broken_chunk(handler, body):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort")


def nonsense(handler, body):
    handler.wfile.write(b"\x1b[31mnonsense\r\n\r\n")


def hang_up(handler, body):
    pass


def to_http(handler, body):
    handler.send_response(302)
    handler.send_header("Location", f"http://{handler.headers['Host']}{handler.path}?again")
    handler.end_headers()


def to_file(handler, body):
    handler.send_response(301)
    handler.send_header("Location", "file:///etc/passwd")
    handler.end_headers()


def to_ftp(handler, body):
    handler.send_response(302)
    handler.send_header("Location", "ftp://127.0.0.1/train2id.txt")
    handler.end_headers()


@pytest.fixture
def server():
    """Serve `bodies` by path; `answers` says how, for a file name that is not answered well."""
    state = SimpleNamespace(bodies={}, answers={}, asked=[])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            if self.path not in state.bodies:
                self.send_error(404)
                return
            answer = state.answers.get(self.path.rpartition("/")[2], whole)
            answer(self, state.bodies[self.path])

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        state.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield state
        listening.shutdown()
        thread.join()


@pytest.fixture
def web(server, monkeypatch):
    """Return the server, as the mirror of the toy data set."""
    server.bodies = {f"/openke/TOY/{name}": data for name, data in FILES.items()}
    monkeypatch.setenv("NSCACHING_MIRROR", server.url)
    return server


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def refusal(name: str = "toy", **kwargs) -> str:
    """Return the one line that fetch refuses with."""
    with pytest.raises(UserError) as caught:
        datasets.fetch(name, **kwargs)
    text = str(caught.value)
    assert text.isprintable()  # one line, and nothing that a terminal would obey
    return text


def left_behind(home: Path) -> list[str]:
    return [path.name for path in (home / "openke").iterdir()]


def test_pinned_table_is_complete():
    assert list(datasets.KNOWN) == ["wn18", "wn18rr", "fb15k", "fb15k237", "fb13"]
    for name, known in datasets.KNOWN.items():
        sums = datasets.checksums(known.folder)
        assert known.name == name
        assert set(FILES) <= set(sums)
        assert set(sums) - set(FILES) == (
            set() if name == "wn18" else {"valid_neg.txt", "test_neg.txt"}
        )
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())


@pytest.mark.parametrize("name", ["fb15k237", "FB15K237", "FB15k-237", "fb15k_237"])
def test_names_are_matched_however_they_are_spelt(name):
    assert datasets.find(name) is datasets.KNOWN["fb15k237"]


def test_every_title_and_folder_is_a_name():
    for known in datasets.KNOWN.values():
        assert datasets.find(known.title) is known
        assert datasets.find(known.folder) is known


def test_unknown_name():
    assert datasets.find("fb15k23") is None
    text = refusal("fb15k23\n")
    assert r"unknown data set 'fb15k23\n'" in text
    assert "fb15k237" in text
    with pytest.raises(UserError, match="unknown data set"):
        datasets.is_cached("fb15k23")


def test_cache_home(monkeypatch, tmp_path):
    monkeypatch.setenv("NSCACHING_HOME", str(tmp_path))
    assert datasets.cache_home() == tmp_path
    monkeypatch.setenv("NSCACHING_HOME", "")
    assert datasets.cache_home() == platformdirs.user_cache_path("nscaching")
    monkeypatch.delenv("NSCACHING_HOME")
    assert datasets.cache_home() == platformdirs.user_cache_path("nscaching")


def test_download_from_the_public_host(home, server, monkeypatch):
    server.bodies = {f"/benchmarks/TOY/{name}": data for name, data in FILES.items()}
    monkeypatch.setattr(datasets, "PUBLIC", f"{server.url}/benchmarks")
    assert not datasets.is_cached("toy")
    path = datasets.fetch("Toy")
    assert path == home / "openke" / "TOY"
    assert content(path) == FILES
    assert left_behind(home) == ["TOY"]
    assert datasets.is_cached("toy")
    assert len(server.asked) == len(FILES)
    assert datasets.fetch("toy") == path
    assert len(server.asked) == len(FILES)  # the second time came from the cache


@pytest.mark.parametrize("answer", [whole, unannounced])
def test_progress(home, web, answer):
    web.answers["train2id.txt"] = answer
    calls = []
    datasets.fetch("toy", lambda *call: calls.append(call))
    assert list(dict.fromkeys(file for file, _, _ in calls)) == list(FILES)
    for name, data in FILES.items():
        done = [done for file, done, _ in calls if file == name]
        assert done == sorted(set(done))
        assert done[-1] == len(data)
        known = name != "train2id.txt" or answer is whole
        totals = {total for file, _, total in calls if file == name}
        assert totals == {len(data) if known else None}
    assert sum(file == "train2id.txt" for file, _, _ in calls) > 1


def test_mirror_folder(home, folder):
    assert content(datasets.fetch("toy")) == FILES


@pytest.mark.parametrize("host", ["", "localhost"])
def test_mirror_file_url(home, folder, monkeypatch, host):
    url = folder.as_uri().replace("file://", f"file://{host}", 1)
    assert "%20" in url
    monkeypatch.setenv("NSCACHING_MIRROR", url)
    assert content(datasets.fetch("toy")) == FILES


@pytest.mark.parametrize("end", ["", "/"])
def test_mirror_http_url(home, server, monkeypatch, end):
    server.bodies = {f"/my/mirror/openke/TOY/{name}": data for name, data in FILES.items()}
    monkeypatch.setenv("NSCACHING_MIRROR", f"{server.url}/my/mirror{end}")
    assert content(datasets.fetch("toy")) == FILES


def test_other_users_may_read_the_cache(home, folder, tmp_path):
    (tmp_path / "plain").mkdir()
    assert datasets.fetch("toy").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_http_404(home, web):
    del web.bodies["/openke/TOY/valid2id.txt"]
    text = refusal()
    assert f"{web.url}/openke/TOY/valid2id.txt: HTTP 404 Not Found" in text
    assert "NSCACHING_MIRROR may name a folder or URL that holds the files" in text
    assert left_behind(home) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (truncated, "ended at byte 8 of 18"),
        (broken_chunk, "IncompleteRead"),
        (nonsense, "nonsense"),
        (hang_up, "closed connection"),
        (to_ftp, "redirected to ftp://127.0.0.1/train2id.txt"),
        (to_http, "redirected to http://127.0.0.1:"),
        (to_file, "HTTP 301"),
    ],
)
def test_broken_answers(home, web, answer, reason):
    web.answers["valid2id.txt"] = answer
    text = refusal()
    assert f"cannot read {web.url}/openke/TOY/valid2id.txt: " in text
    assert reason in text
    assert "NSCACHING_MIRROR" in text
    assert left_behind(home) == []
    assert not datasets.is_cached("toy")
    web.answers.clear()
    assert content(datasets.fetch("toy")) == FILES  # nothing stands in the way of another try


def test_silent_server(home, web, monkeypatch):
    over = threading.Event()
    web.answers["valid2id.txt"] = lambda handler, body: over.wait()
    monkeypatch.setattr(datasets, "TIMEOUT", 0.2)
    try:
        assert "timed out" in refusal()
    finally:
        over.set()
    assert left_behind(home) == []


@pytest.mark.parametrize("answer", [whole, unannounced])
def test_too_large(home, web, monkeypatch, answer):
    web.answers["train2id.txt"] = answer
    monkeypatch.setattr(datasets, "MAX_BYTES", 1000)
    calls = []
    text = refusal(progress=lambda *call: calls.append(call))
    assert "train2id.txt: larger than 1,000 bytes" in text
    blocks = [done for file, done, _ in calls if file == "train2id.txt"]
    assert blocks == ([] if answer is whole else [datasets.BLOCK])
    assert left_behind(home) == []


def test_file_of_the_largest_size(home, web, monkeypatch):
    monkeypatch.setattr(datasets, "MAX_BYTES", max(map(len, FILES.values())))
    assert content(datasets.fetch("toy")) == FILES


def test_corrupted_byte(home, web):
    web.bodies["/openke/TOY/valid2id.txt"] = BAD
    text = refusal()
    assert f"wrong content in valid2id.txt: expected SHA-256 {SHA['valid2id.txt'][:12]}," in text
    assert f"found {hashlib.sha256(BAD).hexdigest()[:12]};" in text
    assert f"{web.url}/openke/TOY/valid2id.txt" in text
    assert left_behind(home) == []


def test_connection_refused(home, monkeypatch):
    with socket.socket() as bound:  # bound but not listening: refuses, and is nobody else's
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("NSCACHING_MIRROR", url)
        text = refusal()
    assert f"cannot read {url}/openke/TOY/entity2id.txt: Connection refused;" in text
    assert "NSCACHING_MIRROR" in text
    assert left_behind(home) == []


@pytest.mark.parametrize(
    ("mirror", "reason"),
    [
        ("no/such/folder", "no/such/folder/openke/TOY/entity2id.txt: No such file or directory"),
        ("no/such\nfolder", "No such file or directory"),
        ("file:///no/such/folder", "No such file or directory"),
        ("file:///no%00folder", "null byte"),
        ("file://elsewhere/folder", "cannot read file://elsewhere/folder/openke"),
        ("ftp://127.0.0.1/folder", "is not a folder or an http, https or file URL"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1:port", "nonnumeric port"),
        ("http://127.0.0.1/a b", "control characters"),
        ("http://", "no host given"),
        ("http:/127.0.0.1/folder", "No such file or directory"),
    ],
)
def test_mirror_that_cannot_be_one(home, monkeypatch, mirror, reason):
    monkeypatch.setenv("NSCACHING_MIRROR", mirror)
    text = refusal()
    assert "NSCACHING_MIRROR" in text
    assert reason in text
    assert not datasets.is_cached("toy")


def test_mirror_folder_that_lacks_a_file(home, folder):
    lacking = folder / "openke" / "TOY" / "test2id.txt"
    lacking.unlink()
    assert (
        f"cannot read {lacking.as_uri()}: No such file or directory; NSCACHING_MIRROR" in refusal()
    )
    assert left_behind(home) == []


def test_cached_file_damaged(home, folder):
    path = datasets.fetch("toy")
    (path / "valid2id.txt").write_bytes(BAD)
    text = refusal()
    assert str(path / "valid2id.txt") in text
    assert f"expected SHA-256 {SHA['valid2id.txt'][:12]}, found" in text
    assert f"found {hashlib.sha256(BAD).hexdigest()[:12]};" in text
    assert f"delete the folder {path} to download it again" in text
    assert (path / "valid2id.txt").read_bytes() == BAD  # the user's to delete


def test_cached_file_missing(home, folder):
    path = datasets.fetch("toy")
    (path / "test2id.txt").unlink()
    text = refusal()
    assert f"{path / 'test2id.txt'}, expected SHA-256 {SHA['test2id.txt'][:12]}: No such" in text
    assert f"delete the folder {path} to download it again" in text
    assert set(content(path)) == set(FILES) - {"test2id.txt"}


def test_cache_folder_that_cannot_be_written(home, folder):
    home.write_text("a file where the folder should be")
    assert not datasets.is_cached("toy")
    text = refusal()
    assert f"cannot write the cache folder {home / 'openke'}: " in text
    assert "NSCACHING_HOME may name another" in text


def test_file_in_the_place_of_the_data_set(home, folder):
    (home / "openke").mkdir(parents=True)
    (home / "openke" / "TOY").write_text("mine")
    assert "cannot write the cache folder" in refusal()
    assert left_behind(home) == ["TOY"]
    assert (home / "openke" / "TOY").read_text() == "mine"


def test_interruption_leaves_nothing(home, folder):
    seen = []

    def interrupt(file, done, total):
        seen.extend(left_behind(home))
        if file == "test2id.txt":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        datasets.fetch("toy", interrupt)
    assert seen == []  # nothing is written before all is there
    assert left_behind(home) == []


def test_errors_of_the_progress_callback_are_its_own(home, folder):
    def broken(file, done, total):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        datasets.fetch("toy", broken)
    assert left_behind(home) == []


def test_two_at_the_same_time(home, folder):
    both = threading.Barrier(2)

    def meet(file, done, total):
        if file == "test2id.txt":
            both.wait(60)  # neither renames before the other has found the cache empty

    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: datasets.fetch("toy", meet), range(2)))
    assert paths == [home / "openke" / "TOY"] * 2
    assert content(paths[0]) == FILES
    assert left_behind(home) == ["TOY"]


def test_loser_of_the_race_verifies_what_the_winner_left(home, folder):
    def win(file, done, total):
        if file == "test2id.txt":
            (home / "openke" / "TOY").mkdir()
            (home / "openke" / "TOY" / "entity2id.txt").write_text("something else")

    assert "damaged data set" in refusal(progress=win)
    assert left_behind(home) == ["TOY"]


@pytest.mark.parametrize("name", datasets.KNOWN)
def test_benchmark_data(mirror, tmp_path, monkeypatch, name):
    monkeypatch.setenv("NSCACHING_HOME", str(tmp_path))
    monkeypatch.setenv("NSCACHING_MIRROR", str(mirror))
    path = datasets.fetch(name)
    known = datasets.KNOWN[name]
    assert path == tmp_path / "openke" / known.folder
    for stem, count in {
        "entity": known.entities,
        "relation": known.relations,
        "train": known.train,
        "valid": known.valid,
        "test": known.test,
    }.items():
        lines = (path / f"{stem}2id.txt").read_text(encoding="utf-8").splitlines()
        assert int(lines[0]) == len(list(filter(None, lines[1:]))) == count
