"""What stands before every view: who may ask, what, how often, and what a browser may do then."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response

from nscaching.serve.refusals import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST = 8000  # bytes of an address
HEADERS_LONGEST = 16_000  # bytes of all headers
PER_SECOND, AT_ONCE = 50.0, 200.0  # requests of a client of another machine
CLIENTS = 10_000  # whose rate is known
DRAINED = 1 << 20  # bytes of a body that are read and dropped, so that the refusal arrives
DRAINING = 2.0  # seconds

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}

ShowRefusal = Callable[[Refusal, "Scope"], Response]


class Hosts:
    """The names by which this service may be asked for.

    A page elsewhere can let its own name lead to this machine and then read the answers (DNS
    rebinding), but such a request has the other name as its host. An address is no name.
    """

    def __init__(self, host: str, names: tuple[str, ...] = ()) -> None:
        self.local = is_loopback(host)
        self.names = {"localhost", host.casefold(), *(name.casefold() for name in names)}

    def allow(self, header: str) -> bool:
        name = header.rpartition("]")[0].lstrip("[") if header[:1] == "[" else header.split(":")[0]
        if name.casefold() in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.local


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Rates:
    """A bucket for each client, filled at a steady rate; a request takes one unit."""

    def __init__(self, per_second: float = PER_SECOND, at_once: float = AT_ONCE) -> None:
        self.per_second, self.at_once = per_second, at_once
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str) -> bool:
        now = time.monotonic()
        left, before = self.buckets.pop(client, (self.at_once, now))
        left = min(self.at_once, left + (now - before) * self.per_second)
        self.buckets[client] = max(left - 1, 0.0), now
        if len(self.buckets) > CLIENTS:
            self.buckets.popitem(last=False)
        return left >= 1


class Guard:
    """Refuses what is not to be answered; adds the headers of safety to every answer."""

    def __init__(
        self, app: ASGIApp, hosts: Hosts, token: str, port: int, refuse: ShowRefusal
    ) -> None:
        self.app, self.hosts, self.token, self.refuse = app, hosts, token, refuse
        self.rates = None if hosts.local else Rates()
        self.cookie = f"nscaching-{port}"  # cookies of one host are shared by its ports
        self.signed = hashlib.sha256(token.encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            if self.token and scope["path"] == "/login":
                response = self._sign_in(scope)
            elif self.token and not self._is_signed_in(scope, headers):
                raise Refusal("not_signed_in", "this service asks for its token")
            else:
                await self.app(scope, receive, guarded)
                return
        except Refusal as refusal:
            response = self.refuse(refusal, scope)
            if refusal.code == "body_not_allowed":
                await _answer_and_drain(response, receive, guarded)
                return
        await response(scope, receive, guarded)

    def _check(self, scope: Scope, headers: dict[bytes, str]) -> None:
        client = (scope.get("client") or ("", 0))[0]
        if self.rates and not self.rates.allow(client):
            raise Refusal("too_many", "too many requests; wait a second")
        if not self.hosts.allow(headers.get(b"host", "")):
            raise Refusal("wrong_host", "this service does not have this host name")
        if b"transfer-encoding" in headers or headers.get(b"content-length", "0").strip("0"):
            raise Refusal("body_not_allowed", "a request here has no body")
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal("method_not_allowed", "only GET and HEAD are answered")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST:
            raise Refusal("too_long", f"the address is longer than {LONGEST:,} bytes")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS_LONGEST:
            raise Refusal("headers_too_long", f"headers are longer than {HEADERS_LONGEST:,} bytes")

    def _sign_in(self, scope: Scope) -> Response:
        try:
            given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=4)
        except ValueError:
            given = {}
        if not self._is_token(given.get("token", [""])[0]):
            raise Refusal("not_signed_in", "the token is wrong" if given else "which token?")
        response = RedirectResponse("/", 303)
        response.set_cookie(self.cookie, self.signed, httponly=True, samesite="lax")
        return response

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _is_signed_in(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        kind, _, given = headers.get(b"authorization", "").partition(" ")
        if kind.casefold() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", "")).get(self.cookie)
        except CookieError:
            cookie = None
        known = cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self.signed.encode()
        )
        return known or scope["path"].startswith("/static/")  # of the page that asks for a token


async def _answer_and_drain(response: Response, receive: Receive, send: Send) -> None:
    """Answer, then read some of the body: a connection closed at once would drop the answer."""
    headers: list[Any] = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    read = 0
    try:
        async with asyncio.timeout(DRAINING):
            while read < DRAINED:
                message = await receive()
                read += len(message.get("body", b""))
                if not message.get("more_body"):
                    break
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
