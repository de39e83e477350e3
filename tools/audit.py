"""Run pip-audit over the lock files, and say plainly where it learned nothing.

pip-audit ends with success if it reaches no data: every package is then skipped. `make audit` and
so `make test` still pass without a network, but never claim that the packages were audited.
"""

from __future__ import annotations

import json
import subprocess
import sys

LOCKS = ("requirements-dev.txt", "requirements-cuda.txt")
SECONDS = 60.0


def run_pip_audit() -> str:
    """Return the JSON that pip-audit prints; it is empty or damaged if pip-audit failed."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"]
    command += [f"--requirement={lock}" for lock in LOCKS]
    command += ["--format=json", "--timeout=5", "--progress-spinner=off"]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed command)
            command, capture_output=True, timeout=SECONDS, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def judge(report: str) -> tuple[int, str]:
    """Return the exit status for a report of pip-audit, and what to say."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        packages = []
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return 0, "pip-audit reached no data: nothing is known about vulnerabilities"
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    found = [
        f"  {package['name']} {package['version']}: {hole['id']}"
        for package in audited
        for hole in package["vulns"]
    ]
    head = f"pip-audit: {len(audited)} packages audited, {len(found)} known vulnerabilities"
    if skipped:
        head += f"; not audited: {', '.join(skipped)}"
    return int(bool(found)), "\n".join([head, *found])


if __name__ == "__main__":
    status, words = judge(run_pip_audit())
    print(words)
    sys.exit(status)
