"""Load of `nscaching serve` on this machine: rates, delays, memory, bad and slow clients, names.

    python benchmarks/serve.py runs/x                     predictions a second, and their delays
    python benchmarks/serve.py runs/x --soak 100000       so many requests: errors and memory
    python benchmarks/serve.py runs/x --hostile 10000     fuzzed paths, headers, bodies
    python benchmarks/serve.py runs/x --slow 300          slow and broken clients beside others
    python benchmarks/serve.py --names 1000000            search over so many names

The service runs as a process of its own on the loopback address; this process asks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
from hostile_requests import hostile

AGENT = b"host: localhost\r\nuser-agent: benchmark\r\n"


class Service:
    """A service that is started for the benchmark."""

    def __init__(self, run: Path) -> None:
        words = ["serve", str(run), "--port", "0", "--json"]
        command = [sys.executable, "-m", "nscaching", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                said = json.loads(text)
                self.run, self.port = said["runs"][0], said["port"]
                return
        sys.exit("the service did not start")

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        print(f"SIGTERM: exit code {self.process.wait(60)}")


class Client:
    """A connection that stays open: a request at a time."""

    def __init__(self, port: int) -> None:
        self.port, self.streams = port, None

    async def get(self, path: str) -> tuple[int, bytes]:
        for _ in range(2):  # the service may close a connection that was idle
            if self.streams is None:
                self.streams = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.streams
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n".encode() + AGENT + b"\r\n")
                return await read_answer(reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
        return 0, b""

    def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            self.streams = None


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return status, await reader.readexactly(int(length[1]) if length else 0)


async def questions(service: Service) -> list[str]:
    """Return addresses of questions for the gaps of training facts."""
    client = Client(service.port)
    base = f"/api/r/{service.run}"
    found = []
    names = json.loads((await client.get(f"{base}/search?top=100"))[1])["entities"]
    for entity in names[:40]:
        about = json.loads((await client.get(f"{base}/entity?name={quote(entity['name'], '')}"))[1])
        for group in about["groups"]:
            relation, other = (
                group["relation"]["name"],
                "head" if group["side"] == "tail" else "tail",
            )
            asked = [{other: entity["name"], "relation": relation}]
            for each in group["others"]:
                asked.append({group["side"]: each["name"], "relation": relation})
            found += [f"{base}/question?{urlencode(one)}" for one in asked]
    client.close()
    random.Random(0).shuffle(found)  # noqa: S311
    return found


async def closed(
    service: Service, paths: list[str], clients: int, count: int
) -> tuple[Counter, list]:
    """Ask one after the other with so many clients, as fast as answers come."""
    left, statuses, delays = iter(range(count)), Counter(), []

    async def ask() -> None:
        client = Client(service.port)
        for i in left:
            begin = time.perf_counter()
            status, _ = await client.get(paths[i % len(paths)])
            delays.append(time.perf_counter() - begin)
            statuses[status] += 1
        client.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return statuses, delays


async def steady(
    service: Service, paths: list[str], rate: float, seconds: float
) -> tuple[Counter, list]:
    """Ask at a steady rate, whether or not answers come; a delay begins when its request is due."""
    statuses, delays, idle = Counter(), [], []

    async def ask(path: str, due: float) -> None:
        client = idle.pop() if idle else Client(service.port)
        status, _ = await client.get(path)
        delays.append(time.perf_counter() - due)
        statuses[status] += 1
        idle.append(client)

    begin, tasks = time.perf_counter(), []
    for i in range(int(rate * seconds)):
        due = begin + i / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(ask(paths[i % len(paths)], due)))
    await asyncio.gather(*tasks)
    for client in idle:
        client.close()
    return statuses, delays


def told(name: str, statuses: Counter, delays: list, seconds: float) -> None:
    p50, p99, most = (1000 * np.quantile(delays, q) for q in (0.5, 0.99, 1))
    rate = len(delays) / seconds
    print(f"{name}: {rate:.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {most:.0f} ms,"
          f" statuses {dict(statuses)}", flush=True)  # fmt: skip


async def load(service: Service) -> None:
    paths = await questions(service)
    print(f"{len(paths):,} different questions")
    await closed(service, paths, 8, 400)  # warm
    for clients in (1, 4, 16, 64):
        begin = time.perf_counter()
        found = await closed(service, paths, clients, 3000)
        told(f"{clients} clients in turn", *found, time.perf_counter() - begin)
    for rate in (300, 400):
        begin = time.perf_counter()
        found = await steady(service, paths, rate, 20)
        told(f"steady {rate} a second", *found, time.perf_counter() - begin)


async def soak(service: Service, count: int) -> None:
    paths, base = await questions(service), f"/api/r/{service.run}"
    names = [path.partition("?")[2] for path in paths]
    others = [f"{base}/search?q={text}" for text in ("a", "un", "/m/0", "xyz", "film")]
    others += [
        f"{base}/relations",
        f"{base}/map",
        base,
        "/api",
        f"/r/{service.run}",
        "/openapi.json",
    ]
    others += [f"/r/{service.run}/question?{name}" for name in names[:20]]
    mixed = paths[:2000] + 4 * others
    random.Random(1).shuffle(mixed)  # noqa: S311
    await closed(service, mixed, 16, 2000)
    print(f"after 2,000 requests: {service.megabytes:.0f} MB")
    done, total, begin = 0, Counter(), time.perf_counter()
    while done < count:
        part = min(10_000, count - done)
        statuses, _ = await closed(service, mixed, 16, part)
        done, total = done + part, total + statuses
        print(f"{done:,}: {service.megabytes:.0f} MB, {dict(total)}", flush=True)
    print(f"{count / (time.perf_counter() - begin):.0f} requests a second")


async def attack(service: Service, count: int) -> None:
    chance, statuses, bad = random.Random(2), Counter(), []  # noqa: S311
    secret = str(Path.cwd()).encode()

    async def send(request: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        try:
            writer.write(request)
            answer = await asyncio.wait_for(reader.read(1 << 20), 30)
            status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
        except ConnectionError:
            status, answer = 0, b""
        finally:
            writer.close()
        statuses[status] += 1
        if not 400 <= status < 500 or secret in answer:
            bad.append((request[:200], answer[:200]))

    requests = [hostile(chance, service.run) for _ in range(count)]
    for begin in range(0, count, 20):
        await asyncio.gather(*(send(request) for request in requests[begin : begin + 20]))
    print(
        f"{count:,} hostile requests: {dict(sorted(statuses.items()))}; {service.megabytes:.0f} MB"
    )
    for request, answer in bad[:5]:
        print("  not refused:", request, "→", answer)


async def slow(service: Service, count: int) -> None:
    """Keep slow and broken clients connected; others must be answered as before."""
    paths, ends = await questions(service), Counter()
    begin = time.perf_counter()

    async def drip(kind: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        try:
            if kind == 0:  # a header, a byte at a time
                for byte in b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 1000:
                    if writer.transport.is_closing():
                        ends["closed"] += 1
                        break
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.5)
            elif kind == 1:  # half a request, then nothing
                writer.write(b"GET / HTTP/1.1\r\nhost: loc")
                ends[(await reader.read(100))[9:12].decode() or "closed"] += 1
            elif kind == 2:  # half a request, then gone
                writer.write(b"GET /r/x HT")
            elif kind == 3:  # an answer that is never read
                writer.write(
                    f"GET /api/r/{service.run}/map HTTP/1.1\r\n".encode() + AGENT + b"\r\n"
                )
                await asyncio.sleep(15)
            else:  # a body that never comes
                writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n")
                ends[(await reader.read(100))[9:12].decode() or "closed"] += 1
        except ConnectionError:
            ends["closed"] += 1
        finally:
            writer.close()

    slow_ones = [asyncio.create_task(drip(i % 5)) for i in range(count)]
    await asyncio.sleep(2)
    found = await steady(service, paths, 200, 15)
    told(f"others beside {count} slow clients", *found, 15)
    await asyncio.gather(*slow_ones)
    print(f"slow clients ended after {time.perf_counter() - begin:.0f} s: {dict(ends)}")
    print(f"{service.megabytes:.0f} MB")


def names(count: int) -> None:
    from nscaching.serve.names import NameIndex

    chance = random.Random(0)  # noqa: S311
    parts = "ka ro min sta ber lin on tu gra pel vi sch dor an el is mar go san ta".split()  # noqa: SIM905

    def word() -> str:
        return "".join(chance.choices(parts, k=chance.randint(2, 4))).capitalize()

    made = [
        [f"{word()} {word()}", f"http://dbpedia.org/resource/{word()}_{i}"] for i in range(count)
    ]
    begin = time.perf_counter()
    index = NameIndex(made, np.random.default_rng(0).integers(0, 1000, count))
    print(
        f"{count:,} entities, {len(index.at):,} places: made in {time.perf_counter() - begin:.1f} s"
    )
    texts = [
        "a",
        "b",
        "ber",
        "http://",
        "http://dbpedia.org/resource/",
        "Berlin Ka",
        "12",
        "ka an",
        "zzz",
    ]
    texts += [
        made[chance.randrange(count)][chance.randrange(2)][: chance.randint(1, 40)]
        for _ in range(500)
    ]
    delays = {}
    for text in texts:
        begin = time.perf_counter()
        index.search(text, 10)
        delays[text] = 1000 * (time.perf_counter() - begin)
    p50, p99 = np.quantile(list(delays.values()), [0.5, 0.99])
    worst = max(delays, key=delays.get)
    slowest = f"slowest {delays[worst]:.1f} ms ({worst!r})"
    print(f"{len(delays)} texts: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {slowest}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    for flag in ("--soak", "--hostile", "--slow", "--names"):
        parser.add_argument(flag, type=int, default=0)
    given = parser.parse_args()
    if given.names:
        names(given.names)
    if given.run is None:
        return
    with Service(given.run) as service:
        print(f"{os.cpu_count()} cores; {service.megabytes:.0f} MB at the start")
        if given.soak:
            asyncio.run(soak(service, given.soak))
        if given.hostile:
            asyncio.run(attack(service, given.hostile))
        if given.slow:
            asyncio.run(slow(service, given.slow))
        if not (given.soak or given.hostile or given.slow):
            asyncio.run(load(service))


if __name__ == "__main__":
    main()
