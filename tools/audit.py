"""Audit what is installed: by pip-audit where it reaches its data, else against constraints.txt.

It says which of the two it did. Part of `make test`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

PINS = Path(__file__).parents[1] / "constraints.txt"
SECONDS = 20.0

# The program itself, and what a virtual environment brings along.
UNPINNED = {"nscaching", "pip", "setuptools", "wheel"}
# What PyTorch's CUDA builds bring along, in the versions that they ask for.
OF_TORCH = ("nvidia-", "cuda-")


def canonical(name: str) -> str:
    """Return a distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


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


def known_holes(report: str) -> list[str] | None:
    """Return what pip-audit's JSON says is vulnerable; None: it is no report."""
    try:
        parts = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    return [
        f"{part['name']} {part['version']}: {hole['id']}"
        for part in parts
        for hole in part.get("vulns", [])
    ]


def run_pip_audit() -> list[str] | None:
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
    return known_holes(done.stdout.decode(errors="replace"))


def main() -> int:
    """Audit and say how; return 1 if something is wrong."""
    holes = run_pip_audit()
    if holes is not None:
        print(f"audit by pip-audit: {len(holes)} known vulnerabilities")
        print("".join(f"  {hole}\n" for hole in holes), end="")
        return 1 if holes else 0
    pins = read_pins(PINS.read_text(encoding="utf-8"))
    installed = [(part.metadata["Name"], part.version) for part in distributions()]
    wrong = differences(installed, pins)
    print(
        "audit by pins (pip-audit is not installed or does not reach its data, so nothing is said "
        f"of known vulnerabilities): {len(installed)} installed, {len(wrong)} not as pinned"
    )
    print("".join(f"  {line}\n" for line in wrong), end="")
    if wrong:
        print("make clean, then make, installs what is pinned")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
