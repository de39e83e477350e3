"""The explorer refuses what it must, answers beside bad clients, and ends without losing any."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nscaching.cli.main import main
from nscaching.cli.verbs.serve import Serve
from nscaching.serve import guard, server
from nscaching.serve.guard import Hosts, Rates, is_loopback
from nscaching.serve.runs import open_runs
from serving import MARK, Running, folders, service  # noqa: F401  (fixtures)

TOKEN = "a-token-of-some-length"


def raw(port, request, end=True):
    """Send bytes; return all that comes until the service closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request)
        if end:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                found += part
        return found


def code(answer):
    status, _, body = answer
    return status, json.loads(body)["error"]["code"]


def test_only_reading_is_answered(service):  # noqa: F811
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
        answer = service.get("/r/world", method)
        assert code(answer) == (405, "method_not_allowed")
        assert answer[1]["allow"] == "GET, HEAD"
    status, headers, body = service.get("/r/world", "HEAD", accept="text/html")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000
    assert code(service.get("/r/world", body=b"x")) == (413, "body_not_allowed")
    assert code(service.get("/r/world", body=b"x" * 3_000_000)) == (413, "body_not_allowed")
    assert code(service.get("/r/world", body=iter([b"x"]), transfer_encoding="chunked"))[0] == 413
    assert code(service.get("/r/world?" + "x" * 9000)) == (414, "too_long")
    for size in (17_000, 100_000):
        long = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * size + b"\r\n\r\n"
        assert raw(service.port, long)[9:12] in (b"400", b"431")


def test_headers_keep_a_browser_here(service):  # noqa: F811
    for path in ("/r/world", "/static/explore.js", "/nowhere", "/openapi.json", "/r/world/report"):
        _, headers, _ = service.get(path, accept="text/html", origin="http://evil.example")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not any(name.startswith("access-control") for name in headers)
        assert "server" not in headers


def test_other_host_names_are_refused(service):  # noqa: F811
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "", "[::1", "127.0.0.1x"):
        assert code(service.get("/r/world", host=host)) == (421, "wrong_host"), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8765"):
        assert service.get("/r/world", host=host)[0] == 200
    far = Hosts("0.0.0.0", ("Explorer.example",))
    assert far.allow("10.1.2.3:80")
    assert far.allow("explorer.EXAMPLE")
    assert not far.allow("evil.example")
    assert is_loopback("::1")
    assert is_loopback("127.8.9.1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")


def test_other_machines_need_the_token(folders):  # noqa: F811
    running = Running(open_runs([folders / "world"]), "0.0.0.0", TOKEN)
    try:
        assert code(running.get("/api")) == (401, "not_signed_in")
        assert code(running.get("/api", authorization="Bearer wrong")) == (401, "not_signed_in")
        assert running.get("/api", authorization=f"Bearer {TOKEN}")[0] == 200
        page = running.get("/", accept="text/html")
        assert page[0] == 401
        assert b"world" not in page[2]
        assert code(running.get("/login?token=wrong")) == (401, "not_signed_in")
        status, headers, _ = running.get(f"/login?token={TOKEN}")
        cookie = headers["set-cookie"]
        assert (status, headers["location"]) == (303, "/")
        assert "HttpOnly" in cookie
        assert TOKEN not in cookie
        assert running.get("/", cookie=cookie.partition(";")[0])[0] == 200
        assert code(running.get("/api", cookie="nscaching-1=x; a=é"))[0] == 401
    finally:
        running.stop()


def test_a_client_of_another_machine_may_not_ask_too_often(monkeypatch):
    now = [0.0]
    # Not the clock of all: a service of another test, in its thread, would sleep until that time.
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rates = Rates(per_second=2, at_once=3)
    assert [rates.allow("a") for _ in range(5)] == [True, True, True, False, False]
    assert rates.allow("b")
    now[0] = 1.0
    assert [rates.allow("a") for _ in range(3)] == [True, True, False]
    monkeypatch.setattr(guard, "CLIENTS", 10)
    for client in range(50):
        rates.allow(str(client))
    assert len(rates.buckets) == 10


def test_slow_and_broken_clients_are_closed(service, monkeypatch):  # noqa: F811
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        halves = []
        for part in (b"GET /r/world HTTP/1.1\r\nhost: loc", b"G", b""):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 10))
            half.sendall(part)
            halves.append(half)
        gone = socket.create_connection(("127.0.0.1", service.port), 10)
        gone.sendall(b"GET /r/world HT")
        gone.close()
        assert service.get("/r/world")[0] == 200
        assert [half.recv(12) for half in halves] == [b"HTTP/1.1 408"] * 2 + [b""]
    assert time.monotonic() - begin < 8


def test_too_many_connections_cost_those_that_wait_longest(service, monkeypatch):  # noqa: F811
    monkeypatch.setattr(server, "CONNECTIONS", 5)
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 10))
            for _ in range(8)
        ]
        assert service.get("/r/world")[0] == 200
        assert idle[0].recv(1) == b""


def test_hostile_requests_are_refused_and_nothing_else(service, capfd):  # noqa: F811
    path = Path(__file__).parents[1] / "benchmarks" / "hostile_requests.py"
    spec = importlib.util.spec_from_file_location("hostile_requests", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    chance = random.Random(7)
    for _ in range(400):
        request = benchmark.hostile(chance, "world")
        answer = (
            raw(service.port, request, end=False)
            if b"\r\n\r\n" not in request
            else raw(service.port, request)
        )
        assert re.match(rb"HTTP/1.1 4\d\d ", answer), (request[:300], answer[:300])
        assert MARK.encode() not in answer
    assert service.get("/r/world")[0] == 200
    assert capfd.readouterr().err == ""  # no traceback


def test_pipelined_and_odd_requests(service):  # noqa: F811
    one = b"GET /api HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert raw(service.port, one * 3).count(b"HTTP/1.1 200") == 3
    answer = raw(service.port, one + b"\x00\xff nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert raw(service.port, b"GET /api HTTP/1.0\r\n\r\n")[9:12] == b"421"
    upgrade = (
        b"GET /api HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    )
    assert raw(service.port, upgrade)[9:12] == b"200"
    two = b"GET /api HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"
    assert raw(service.port, two)[9:10] == b"4"


def started(*words, **environment):
    """Start ``nscaching serve`` as a process; return the process, and what it says of itself."""
    command = [sys.executable, "-m", "nscaching", "serve", *map(str, words), "--port=0", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env={**os.environ, **environment})
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        text += line
    return process, json.loads(text)


def test_sigterm_ends_when_requests_in_flight_are_answered(folders):  # noqa: F811
    process, said = started(folders / "world")
    assert said["token"] == ""
    slow = "/api/r/world/explain?head=Andorra&relation=speaks&tail=Spanish"  # loads PyTorch first
    request = f"GET {slow} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        clients = []
        for part in (request, request, b"GET / HTTP/1.1\r\nhos"):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", said["port"]), 60))
            client.sendall(part)
            clients.append(client)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        answers = [client.makefile("rb").read() for client in clients]
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 2 + [b""]
    assert all(json.loads(answer.partition(b"\r\n\r\n")[2])["similar"] for answer in answers[:2])
    assert process.wait(30) == 0
    assert process.communicate() == ("", "ended\n")


def test_the_token_is_said_at_the_start(folders, capsys):  # noqa: F811
    process, said = started(folders / "world", "--host", "0.0.0.0", NSCACHING_TOKEN=TOKEN)
    process.terminate()
    assert process.communicate() == ("", "ended\n")
    assert process.returncode == 0
    assert said == {"host": "0.0.0.0", "port": said["port"], "runs": ["world"], "token": TOKEN}
    Serve(paths=(), host="fe80::1")._say(80, "a/b", ["x", "y"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "token: a/b",
        "link:  http://[fe80::1]:80/login?token=a%2Fb",
        "serving x, y at http://[fe80::1]:80/",
        "Ctrl-C ends",
    ]
    Serve(paths=(), host="0.0.0.0")._say(80, "", ["x"])
    assert f"http://{socket.gethostname()}:80/" in capsys.readouterr().out


def test_errors_of_the_command_line_are_one_line(folders, tmp_path, capsys, monkeypatch):  # noqa: F811
    def said(*words):
        with pytest.raises(SystemExit) as stopped:
            main(["serve", *map(str, words)])
        assert stopped.value.code == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        return lines[0]

    run = folders / "world"
    assert "does not exist" in said(tmp_path / "none", "--port", "0")
    assert "nscaching serve runs/x" in said()
    assert "0 to 65535" in said(run, "--port", "70000")
    with server.listen("127.0.0.1", 0) as taken:
        assert "--port 0" in said(run, "--port", taken.getsockname()[1])
    assert "cannot listen on 192.0.2.1" in said(run, "--host", "192.0.2.1")
    strange = shutil.copytree(run, tmp_path / "strange")
    config = strange / "config.toml"
    config.write_text(config.read_text().replace('model = "ComplEx"', 'model = "theirs.py:Theirs"'))
    assert "--trust" in said(strange, "--port", "0")
    monkeypatch.setenv("NSCACHING_TOKEN", "short")
    assert "12 or more" in said(run, "--host", "0.0.0.0")
    monkeypatch.setattr("nscaching.cli.verbs.serve.find_spec", lambda name: None)
    assert said(run) == "nscaching: nscaching serve needs more: pip install nscaching[serve]"


def test_other_verbs_do_not_load_a_web_server():
    code = "import sys, nscaching.cli.main; print({'starlette', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
