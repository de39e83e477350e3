"""HTTP: uvicorn on one socket, with deadlines for slow clients and an end that loses no answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol

from nscaching.errors import UserError, flag
from nscaching.serve.refusals import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HEAD_SECONDS = 10.0  # from a connection, or the end of an answer, to the next whole request
REQUEST_SECONDS = 60.0  # from a request to the end of its answer, which a client may read slowly
IDLE_SECONDS = 15  # that a connection without a request stays open
MOST_HEAD = 16 << 10  # bytes of the head of a request
CONNECTIONS = 400  # at once; beyond it the one that has waited longest is closed
LINGERING = 1.0  # seconds in which what still arrives is dropped, so that a refusal is read
UNREAD_SECONDS = 5.0  # for which the end of the service waits while a client does not read


def _refusal(status: bytes, code: str, message: str) -> bytes:
    body = json.dumps(Refusal(code, message).to_dict()).encode()
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n"
    return head % status + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body


TOO_SLOW = _refusal(b"408 Request Timeout", "too_slow", "the request did not arrive in time")
NO_REQUEST = _refusal(b"400 Bad Request", "bad_request", "this is no request of HTTP")


class Patient(H11Protocol):
    """A connection that knows since when it waits for a request, or for the end of an answer."""

    since = 0.0
    begun = False  # a part of a request has arrived
    ended = False  # the client sends no more
    refused = False
    last = False  # the service ends: no request after the one that is being answered

    @property
    def waits(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # An answer has two parts: the second must not wait until the first is confirmed.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.since = time.monotonic()
        if len(self.connections) > CONNECTIONS:
            waiting = [one for one in self.connections if isinstance(one, Patient) and one.waits]
            min(waiting, key=lambda one: one.since, default=self).drop()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        waited, self.begun = self.waits, True
        super().data_received(data)
        if waited and not self.waits:
            self.since = time.monotonic()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Stay open for the answers to what has arrived; without any, close."""
        self.ended = True
        return not self.waits

    def on_response_complete(self) -> None:
        self.since, self.begun = time.monotonic(), False
        super().on_response_complete()
        if self.ended and self.waits:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Say that a request is none; where an answer is on its way already, close."""
        if self.waits:
            self._refuse(NO_REQUEST)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close at once, or when the request that has begun is answered."""
        if self.last:
            return
        self.last, self.since = True, time.monotonic()
        with contextlib.suppress(h11.LocalProtocolError):
            super().shutdown()
            return
        self.transport.close()

    def drop(self) -> None:
        if not self.waits or self.refused or self.transport.is_closing():
            self.transport.abort()
        elif self.begun:
            self._refuse(TOO_SLOW)
        else:
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        self.refused = True
        self.transport.write(answer)
        with contextlib.suppress(OSError):  # the client has gone, which nobody has noticed yet
            self.transport.write_eof()
        self.loop.call_later(LINGERING, self.transport.close)

    def check(self, now: float) -> None:
        """Drop a client that takes too long."""
        most = HEAD_SECONDS if self.waits else REQUEST_SECONDS
        if self.last and (self.transport.is_closing() or self.flow.write_paused):
            most = UNREAD_SECONDS
        if now - self.since > most:
            self.drop()


class Server(uvicorn.Server):
    """Closes connections that are too slow; ``say`` is called when requests are answered."""

    say: Callable[[], None] | None = None
    ending = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.say is not None:
            self.say()
        self.sweeper = asyncio.create_task(self._sweep(1))  # kept: a task needs a reference

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that have begun; close everything else at once."""
        self.sweeper.cancel()
        self.ending, self.sweeper = True, asyncio.create_task(self._sweep(0.1))
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _sweep(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Patient):
                    if self.ending:  # some connections are accepted, but not yet here, when it ends
                        connection.shutdown()
                    connection.check(now)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one."""
    if not 0 <= port < 1 << 16:
        raise UserError(f"{flag('port')} must be from 0 to 65535, not {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = error.strerror or error
        cure = f"; {flag('port')} 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise UserError(f"cannot listen on {host} port {port}: {why}{cure}") from None


def new_server(app: ASGIApp) -> Server:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each bad request
    options: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        lifespan="off",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(REQUEST_SECONDS),
        h11_max_incomplete_event_size=MOST_HEAD,
        **options,
    )
    return Server(config)


def run(app: ASGIApp, listening: socket.socket, say: Callable[[], None]) -> None:
    """Answer until SIGTERM or Ctrl-C; requests that have begun are answered before the end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again at its end
    # Products here are small and many: threads of one would wait for each other, and for the loop.
    with threadpool_limits(1, user_api="blas"):
        server = new_server(app)
        server.say = say
        server.run([listening])
