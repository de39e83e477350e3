"""Audit what is installed: by pip-audit where it reaches its data, else against pins and hashes.

It says which of the two it did. Part of `make test`. With --write-lock it writes the hashes of what
is installed here into lock.txt instead (`make lock`, after a change of constraints.txt).
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import hash_lock
from hash_lock import canonical

PINS = Path(__file__).parents[1] / "constraints.txt"
SECONDS = 20.0

# The program itself, and what a virtual environment brings along.
UNPINNED = {"nscaching", "pip", "setuptools", "wheel"}
# What PyTorch's CUDA builds bring along, in the versions that they ask for.
OF_TORCH = ("nvidia-", "cuda-")


def counts(part: Distribution) -> bool:
    """Say whether a distribution is one that is pinned."""
    name = canonical(part.metadata["Name"])
    return name not in UNPINNED and not name.startswith(OF_TORCH)


def read_pins(text: str) -> dict[str, str]:
    """Return name → version of "name==version" lines; anything else is an error."""
    pins = {}
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if words:
            name, equals, version = words.partition("==")
            if not equals or not re.fullmatch(r"[\w.+!-]+", version):
                raise ValueError(f"{PINS.name}: {words!r} pins no version")
            pins[canonical(name)] = version
    return pins


def differences(installed: Iterable[tuple[str, str]], pins: Mapping[str, str]) -> list[str]:
    """Say of each distribution that is not the pinned one what it is and what it should be."""
    found = []
    for name, version in sorted((canonical(n), v) for n, v in installed):
        if name in UNPINNED or name.startswith(OF_TORCH):
            continue
        # "+cpu" and the like say which build of a version it is.
        if name not in pins:
            found.append(f"{name} {version} is installed and not pinned")
        elif pins[name] not in (version, version.partition("+")[0]):
            found.append(f"{name} {version} is installed, {pins[name]} is pinned")
    return found


@dataclass(frozen=True)
class Report:
    """What pip-audit found."""

    audited: int
    skipped: list[str]
    holes: list[str]


def read_report(text: str) -> Report | None:
    """Read pip-audit's JSON; None: it is no report, or one of nothing.

    Where it does not reach its data it may skip every distribution and call that a success.
    """
    try:
        parts = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    skipped = [part["name"] for part in parts if "skip_reason" in part]
    holes = [
        f"{part['name']} {part['version']}: {hole['id']}"
        for part in parts
        for hole in part.get("vulns", [])
    ]
    audited = len(parts) - len(skipped)
    return Report(audited, skipped, holes) if audited else None


def run_pip_audit() -> Report | None:
    """Ask pip-audit, if it is installed and reaches its data; None: it did not."""
    if importlib.util.find_spec("pip_audit") is None:
        return None
    command = [sys.executable, "-m", "pip_audit", "--local", "--format", "json", "--timeout", "5"]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed command)
            [*command, "--progress-spinner", "off"],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return read_report(done.stdout.decode(errors="replace"))


def main() -> int:
    """Audit and say how; return 1 if something is wrong."""
    report = run_pip_audit()
    if report is not None:
        known, not_known = len(report.holes), ", ".join(report.skipped) or "none"
        print(
            f"audit by pip-audit: {report.audited} audited, {known} known vulnerabilities; "
            f"skipped: {not_known}"
        )
        print("".join(f"  {hole}\n" for hole in report.holes), end="")
        return 1 if report.holes else 0
    pins = read_pins(PINS.read_text(encoding="utf-8"))
    installed = [part for part in distributions() if counts(part)]
    wrong = differences([(part.metadata["Name"], part.version) for part in installed], pins)
    locked = hash_lock.read_lock(hash_lock.LOCK.read_text(encoding="utf-8"))
    changed, unknown = hash_lock.against(installed, locked)
    wrong += changed
    print(
        "audit by pins and hashes (pip-audit is not installed or does not reach its data, so "
        f"nothing is said of known vulnerabilities): {len(installed)} installed, "
        f"{len(installed) - len(unknown)} of them with a hash for this platform, "
        f"{len(wrong)} faults"
    )
    print("".join(f"  {line}\n" for line in wrong), end="")
    if unknown:
        print(f"no hash of these builds, files as they say themselves: {', '.join(unknown)}")
    if wrong:
        print("make clean, then make, installs what is pinned")
    return 1 if wrong else 0


def write_lock() -> int:
    """Take what is installed for what should be."""
    pins = read_pins(PINS.read_text(encoding="utf-8"))
    hash_lock.write([part for part in distributions() if counts(part)], pins)
    return 0


if __name__ == "__main__":
    sys.exit(write_lock() if sys.argv[1:] == ["--write-lock"] else main())
