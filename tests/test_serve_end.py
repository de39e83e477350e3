"""The end of the explorer: who has asked is answered, and no client can hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time

import pytest

from nscaching.serve import guard, server
from nscaching.serve.guard import Guard, Hosts
from nscaching.serve.server import Patient
from serving import end

HOST = b"host: localhost\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
SLOW = GET.replace(b"/ ", b"/slow ", 1)
BIG = GET.replace(b"/ ", b"/big ", 1)
BODY = b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 9\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n5\r\nab"
SIZES = {"/big": 30_000_000}  # bytes of an answer, more than sockets of two sides keep


async def answer(scope, receive, send):
    if scope["path"] == "/slow":
        await asyncio.sleep(0.8)
    size = SIZES.get(scope["path"], 5)
    length = (b"content-length", b"%d" % size)
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": b"x" * size})


def refuse(refusal, scope):
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(refusal.code, refusal.status)


class Ending:
    """A service in a thread, and clients that are left open in some state."""

    def __init__(self):
        listening = server.listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.server = server.new_server(Guard(answer, Hosts("127.0.0.1"), "", 0, refuse))
        self.thread = threading.Thread(target=self.server.run, args=([listening],))
        self.clients = contextlib.ExitStack()
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def client(self, sent=b"", eof=False, read=b""):
        made = self.clients.enter_context(socket.create_connection(("127.0.0.1", self.port), 10))
        made.sendall(sent)
        if eof:
            made.shutdown(socket.SHUT_WR)
        found = b""
        while read not in found:
            found += made.recv(65536)
        return made

    def settled(self):
        """Wait until all that has been sent has arrived."""
        time.sleep(0.2)

    def end(self, within):
        began = time.monotonic()
        end(self.server, self.thread)
        assert time.monotonic() - began < within


@pytest.fixture
def ending():
    made = Ending()
    try:
        yield made
    finally:
        with made.clients:
            end(made.server, made.thread)


def rest_of(client):
    """Return what still comes until the service closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 20):
            found += part
    return found


def test_who_has_not_asked_is_closed_at_once(ending):
    clients = {
        "idle": ending.client(),
        "half closed": ending.client(eof=True),
        "part of a head": ending.client(GET[:20]),
        "part of a head, half closed": ending.client(GET[:20], eof=True),
        "kept alive": ending.client(GET, read=b"xxxxx"),
        "kept alive, half closed": ending.client(GET, eof=True, read=b"xxxxx"),
        "kept alive, with part of a head": ending.client(GET + GET[:20], read=b"xxxxx"),
        "of HTTP/1.0": ending.client(GET.replace(b"1.1", b"1.0"), read=b"xxxxx"),
        "refused": ending.client(b"\0\r\n\r\n", read=b"400"),
        "answered, then refused": ending.client(GET + b"\0 n\r\n\r\n", read=b"400"),
        "of another protocol": ending.client(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", read=b"4"),
        "answered, with a body that never comes": ending.client(
            BODY.replace(b"localhost", b"evil.example") + b"\r\nab", read=b"421"
        ),
    }
    ending.settled()
    ending.end(within=1)
    for state, client in clients.items():
        assert b"HTTP/1.1 2" not in rest_of(client), state


def test_clients_that_have_gone_are_not_waited_for(ending):
    for sent in (b"", GET[:20], GET, GET * 20, BODY + b"\r\nab", b"\0\r\n\r\n"):
        ending.client(sent).close()
        reset = ending.client(sent)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
    ending.end(within=1)


def test_who_has_asked_is_answered(ending, monkeypatch):
    monkeypatch.setattr(guard, "DRAINING", 0.6)
    one, refusal = b"HTTP/1.1 200", b"HTTP/1.1 413"
    clients = {
        "waiting": (ending.client(SLOW), one),
        "half closed": (ending.client(SLOW, eof=True), one),
        "with a second request": (ending.client(SLOW + GET), one),
        "with part of a second request": (ending.client(SLOW + GET[:20]), one),
        "with a body that never comes": (ending.client(BODY + b"\r\nab"), refusal),
        "with a body cut short": (ending.client(BODY + b"\r\nab", eof=True), refusal),
        "with a body that may come": (
            ending.client(BODY + b"expect: 100-continue\r\n\r\n"),
            refusal,
        ),
        "with a chunk that never comes": (ending.client(CHUNKED), refusal),
    }
    ending.settled()
    ending.end(within=2)
    for state, (client, status) in clients.items():
        got = rest_of(client)
        assert got.count(b"HTTP/1.1 ") - got.count(b"HTTP/1.1 100") == 1, state
        assert status in got, state
        assert got.endswith(b"xxxxx" if status == one else b"body_not_allowed"), state


def test_who_does_not_read_is_waited_for_a_while_only(ending, monkeypatch):
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.4)
    for requests in (1, 2):
        for eof in (False, True):
            ending.client(BIG * requests, eof)
    reading = ending.client(BIG)
    ending.settled()
    found = []
    reader = threading.Thread(target=lambda: found.append(rest_of(reading)))
    reader.start()
    ending.end(within=2)
    reader.join()
    assert len(found[0]) > SIZES["/big"]  # who reads has the whole answer


def test_connections_that_come_as_the_service_ends_are_closed(ending, monkeypatch):
    """The loop has accepted them, but tells the service of them later than of the end."""
    made, accepted = Patient.connection_made, threading.Semaphore(0)

    def told_later(self, transport):
        transport.pause_reading()
        accepted.release()
        self.loop.call_later(0.25, tell, self, transport)

    def tell(self, transport):
        made(self, transport)
        transport.resume_reading()

    waiting = ending.client(SLOW)  # keeps the service up until the others are known
    ending.settled()
    monkeypatch.setattr(Patient, "connection_made", told_later)
    silent, asking = ending.client(), ending.client(GET)
    assert accepted.acquire(timeout=5)
    assert accepted.acquire(timeout=5)
    ending.end(within=2)
    assert rest_of(waiting).endswith(b"xxxxx")
    assert rest_of(silent) == b""
    assert rest_of(asking)[:12] in (b"HTTP/1.1 200", b"")


def test_a_client_that_goes_as_it_is_told_of_its_slowness_is_no_error(ending):
    """An error would end the only task that closes slow clients."""
    ending.client(GET[:20])
    ending.settled()
    (slow,) = ending.server.server_state.connections
    held, gone, errors = threading.Event(), threading.Event(), []

    def sweep():
        held.set()
        gone.wait(5)
        try:
            slow.check(slow.since + 2 * server.HEAD_SECONDS)
        except OSError as error:
            errors.append(error)

    slow.loop.call_soon_threadsafe(sweep)
    assert held.wait(5)
    ending.clients.close()
    gone.set()
    ending.end(within=2)
    assert errors == []
    assert slow.refused
