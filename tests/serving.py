"""What the tests of the explorer share: runs in a folder, a service of this process, requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
import time
import traceback

import pytest

from helpers import TINY
from nscaching import KnowledgeGraph, ProbeConfig, train
from nscaching.serve import server
from nscaching.serve.app import new_app
from nscaching.serve.runs import open_runs

MARK = "a-folder-of-this-machine"  # stands in every path, and in no answer
HOSTILE = [
    "<script>document.title='obeyed'</script>",
    "</title></style><img src=/nothing.png onerror=\"document.title='obeyed'\">",
    "\" onmouseover='alert(1)' autofocus onfocus='alert(1)' x=\"",
    "{{ 7 * 7 }} {% raw %}",
    "&lt;b&gt; & &amp; ?a=b&c=d#e %00 %2F",
    "turned \u202e around \u2066",
    "tab\there\nand\x00\x1b[31mred\x85",
    "long " * 20_000,
    "   ",
    "https://example.org/e#1",
    "javascript:alert(1)",
    "שלום 👩‍👧",
]


def hostile_graph():
    """Build a graph whose names, labels and own name would break careless pages."""
    names = HOSTILE + [f"e{i}" for i in range(12)]
    relations = ["<b>r</b>", '" onclick="alert(1)', "../../etc/passwd?x=#y"]
    rows = [
        (names[i], relations[j], names[(3 * i + j + 1) % 24]) for i in range(24) for j in (0, 1, 2)
    ]
    labels = {"e0": "<i>label</i>", "e1": "same label", "e2": "same label"}
    return KnowledgeGraph.from_triples(rows, labels=labels, name="<u>graph</u>")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Train small runs: of the embedded graph, another one there, one with hostile names."""
    base = tmp_path_factory.mktemp(MARK)
    graph = KnowledgeGraph.load("world")
    small = TINY | {"dim": 16, "batch_size": 1024, "lr": 0.3, "optimizer": "adagrad"}
    small |= {"objective": "softmax", "n1": 8, "tail": 64, "epochs": 3, "validate_every": 0}
    probes = ProbeConfig(snapshots=(0, 1))
    train(graph, out=base / "world", probes=probes, **small | {"model": "ComplEx"})
    train(graph, out=base / "other", **small | {"epochs": 1})
    train(hostile_graph(), out=base / "hostile", probes=probes, **TINY)
    return base


def end(running, thread):
    """End a server that runs in a thread; where it does not end, say what it is doing."""
    running.should_exit = True
    thread.join(30)
    if thread.is_alive():
        doing = "".join(traceback.format_stack(sys._current_frames()[thread.ident]))
        state = running.server_state
        pytest.fail(f"{len(state.connections)} connections, {len(state.tasks)} tasks:\n{doing}")


class Running:
    """A service in a thread of this process."""

    def __init__(self, runs, host="127.0.0.1", token="", names=()):
        self.runs, self.listening = runs, server.listen(host, 0)
        self.port = self.listening.getsockname()[1]
        self.server = server.new_server(new_app(runs, host, self.port, token, names))
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def get(self, path, method="GET", body=None, **headers):
        """Return status, headers and body of a request."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        ) as c:
            c.request(
                method, path, body, {name.replace("_", "-"): v for name, v in headers.items()}
            )
            answer = c.getresponse()
            return answer.status, dict(answer.headers), answer.read()

    def json(self, path):
        status, _, body = self.get("/api" + path)
        assert status == 200, body
        return json.loads(body)

    def stop(self):
        end(self.server, self.thread)


@pytest.fixture(scope="session")
def service(folders):
    runs = open_runs([folders / name for name in ("world", "other", "hostile")])
    running = Running(runs)
    yield running
    running.stop()
    for run in runs:
        run.close()


def sample_paths():
    """Return an address of every view, of the embedded graph and of the one with hostile names."""
    return [
        "/",
        "/r/world",
        "/r/world/search?q=po",
        "/r/world/entity?name=Portugal",
        "/r/world/facts?name=Portugal&relation=has_province",
        "/r/world/question?head=Portugal&relation=speaks&known=mark",
        "/r/world/question?head=Portugal&tail=Spain",
        "/r/world/explain?head=Andorra&relation=speaks&tail=Spanish",
        "/compare?head=Portugal&relation=speaks&a=world&b=other",
        "/r/world/relations",
        "/r/world/relation?name=borders",
        "/r/world/cache?head=Portugal&relation=borders",
        "/r/world/map?name=Portugal",
        "/r/hostile",
        "/r/hostile/search",
        "/r/hostile/entity?name=%230",
        "/r/hostile/entity?name=%237",
        "/r/hostile/question?relation=%230&tail=%231&known=mark",
        "/r/hostile/explain?head=%232&relation=%231&tail=%233",
        "/r/hostile/relations",
        "/r/hostile/relation?name=%231",
        "/r/hostile/map",
    ]
