"""What installed distributions are made of, as hashes: lock.txt says what they should be.

A wheel's RECORD names every file with its SHA-256. The hash of a distribution is that of these
lines, apart from what an installer adds, so it is the same wherever the same wheel is installed.
Wheels of one version differ from platform to platform; lock.txt has those of the platforms that it
was written on, and others stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

LOCK = Path(__file__).parent / "lock.txt"
OF_INSTALLER = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")

Build = tuple[str, str, str]
"""Name, version and tag of a wheel."""


def canonical(name: str) -> str:
    """Return a distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build_of(part: Distribution) -> Build:
    """Say which wheel a distribution was installed from."""
    wheel = part.read_text("WHEEL") or ""
    tags = sorted(line[5:].strip() for line in wheel.splitlines() if line.startswith("Tag: "))
    return canonical(part.metadata["Name"]), part.version, ".".join(tags) or "none"


def _hashed(part: Distribution) -> Iterator[tuple[PackagePath, str]]:
    for file in part.files or ():
        if file.hash is None or file.parts[0] == ".." or file.name in OF_INSTALLER:
            continue
        if file.hash.mode != "sha256":
            raise ValueError(f"{part.metadata['Name']}: {file} has no SHA-256")
        yield file, file.hash.value


def hash_of(part: Distribution) -> str:
    """Return the hash of all that a distribution says it is made of."""
    lines = sorted(f"{file.as_posix()},{value}" for file, value in _hashed(part))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def changed(part: Distribution) -> list[str]:
    """Name the files that are not what the distribution says they are."""
    found = []
    for file, value in _hashed(part):
        path = Path(str(file.locate()))
        try:
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").digest()
        except OSError as error:
            found.append(f"{file}: {error.strerror}")
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != value:
            found.append(f"{file}: it was changed after it was installed")
    return found


def read_lock(text: str) -> dict[Build, str]:
    """Return the hashes of "name==version tag sha256" lines; anything else is an error."""
    locked = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            name, equals, version = words[0].partition("==")
            if len(words) != 3 or not equals or not re.fullmatch(r"[0-9a-f]{64}", words[2]):
                raise ValueError(f"{LOCK.name}: {line!r} is not NAME==VERSION TAG SHA256")
            locked[canonical(name), version, words[1]] = words[2]
    return locked


def against(parts: Iterable[Distribution], locked: dict[Build, str]) -> tuple[list[str], list[str]]:
    """Return what is wrong with distributions, and the builds that have no hash in the lock."""
    wrong, unknown = [], []
    for part in parts:
        build = build_of(part)
        name = f"{build[0]} {build[1]}"
        if build not in locked:
            unknown.append(name)
        elif hash_of(part) != locked[build]:
            wrong.append(f"{name}: it is not made of what {LOCK.name} says")
        wrong += [f"{name}: {line}" for line in changed(part)]
    return wrong, unknown


def write(parts: Iterable[Distribution], pins: dict[str, str]) -> None:
    """Put the hashes of what is installed into the lock; versions that are not pinned go."""
    locked = read_lock(LOCK.read_text(encoding="utf-8")) if LOCK.exists() else {}
    locked |= {build_of(part): hash_of(part) for part in parts}
    kept = {b: h for b, h in locked.items() if pins.get(b[0]) in (b[1], b[1].partition("+")[0])}
    lines = [f"{name}=={version} {tag} {kept[name, version, tag]}" for name, version, tag in kept]
    head = "# Written by make lock: what the wheels in constraints.txt are made of.\n"
    LOCK.write_text(head + "".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
