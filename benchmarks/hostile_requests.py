"""Requests that `nscaching serve` must refuse: fuzzed paths, headers and bodies."""

from __future__ import annotations

import random
from urllib.parse import quote

ODD = ["../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%5c..", "%00", "\x7f", "%ff%fe",
       "<script>alert(1)</script>", "'; DROP TABLE", "{{7*7}}", "${jndi:ldap://x}", "a" * 9000,
       "%", "%zz", "?", "??&&==", "#17", "-1", "1e999", "NaN", "∞", "\u202e", "//"]  # fmt: skip


def hostile(random: random.Random, run: str) -> bytes:
    """Return the bytes of a request that must be refused."""

    def odd() -> str:
        text = random.choice(ODD)
        return (
            text
            if random.random() < 0.5
            else text + "".join(map(chr, random.choices(range(33, 127), k=6)))
        )

    def get(path: str, *headers: str, host: str = "localhost") -> bytes:
        safe = quote(path, "/?&=%#+{}$;:<>'\\")
        return f"GET {safe} HTTP/1.1\r\nhost: {host}\r\n".encode() + "".join(
            f"{header}\r\n" for header in headers).encode("utf-8") + b"\r\n"  # fmt: skip

    base = random.choice(["/r/", "/api/r/"]) + run
    kind = random.randrange(12)
    if kind == 0:
        return get("/" + odd().lstrip("/?#") + "x")
    if kind == 1:
        return get(f"{base}/entity?name=zz-{quote(odd(), '')}-zz")
    if kind == 2:
        return get(f"{base}/question?{quote(odd(), '')}={quote(odd(), '')}&top={quote(odd(), '')}x")
    if kind == 3:
        method = random.choice(
            ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get"]
        )
        return get(f"{base}/search?q=a").replace(b"GET", method.encode(), 1)
    if kind == 4:
        return get(
            base,
            host=random.choice(
                ["evil.example", "127.0.0.1.evil.example", "[::2", "8.8.8.8", "a b", ""]
            ),
        )
    if kind == 5:
        size = random.choice([1, 1000, 200_000])
        return get(base, f"content-length: {size}") + b"x" * size
    if kind == 6:
        return get(base, "transfer-encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
    if kind == 7:
        return get(base, "x: " + "y" * random.choice([20_000, 70_000]))
    if kind == 8:
        return bytes(random.randrange(256) for _ in range(random.randrange(1, 300))) + b"\r\n\r\n"
    if kind == 9:
        return get("/static/" + odd().lstrip("?#") + "x")
    if kind == 10:
        return get(f"{base}/map?left={quote(odd(), '')}x&by={quote(odd(), '')}")
    return get(
        f"{base}/facts?name=%2Fm%2Fnone-{quote(odd(), '')}&relation=&start=-5", "range: bytes=0-"
    )
