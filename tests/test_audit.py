"""The lock files hold a hash of everything that they pin, and pip refuses any other file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import audit  # noqa: E402

HASH = r"--hash=sha256:[0-9a-f]{64}"


def pins(name):
    """Return name → version of a lock file in which each entry is pinned and has hashes."""
    text = re.sub(r"\\\n", " ", (ROOT / name).read_text())
    found = {}
    for line in text.splitlines():
        if not line.strip().startswith("#"):
            entry = re.fullmatch(rf"([\w-]+)==([\w.+]+)(?: *;[^\\-]+)?(?: +{HASH})+", line.rstrip())
            assert entry, line
            found[entry[1]] = entry[2]
    return found


def test_everything_that_make_installs_is_pinned_with_hashes():
    dev, cuda, cpu = (pins(f"requirements-{name}.txt") for name in ("dev", "cuda", "cpu"))
    assert not dev.keys() & cuda.keys()
    assert cpu == {"torch": f"{dev['torch']}+cpu"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for line in [*asked, *(line for extra in extras for line in extra)]:
        wanted = Requirement(line)
        if wanted.name != "nscaching":
            assert wanted.specifier.contains(dev[canonicalize_name(wanted.name)]), line


def make_wheel(folder):
    wheel = folder / "some_part-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        info = "some_part-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-part\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.mark.parametrize("right", [True, False])
def test_pip_refuses_a_file_with_another_hash(tmp_path, right):
    make = (ROOT / "Makefile").read_text()
    installs = re.findall(r"\$\(INSTALL\) (.*)", make)
    locked = [line for line in installs if "-r requirements-" in line]
    assert len(locked) == 3
    assert all("--require-hashes" in line for line in locked)
    wheel = make_wheel(tmp_path)
    pip = [sys.executable, "-m", "pip", "--isolated"]
    said = subprocess.run([*pip, "hash", wheel], capture_output=True, text=True, check=True).stdout
    digest = re.search(HASH, said)[0] if right else f"--hash=sha256:{'0' * 64}"
    (tmp_path / "lock.txt").write_text(f"some-part==1.0 {digest}\n")
    options = ["--no-index", "--find-links", tmp_path, "--no-deps", "--require-hashes"]
    target = ["--target", tmp_path / "installed", "-r", tmp_path / "lock.txt"]
    done = subprocess.run(
        [*pip, "install", *options, *target], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is right
    assert (tmp_path / "installed").exists() is right
    assert ("DO NOT MATCH THE HASHES" in done.stderr) is not right


def test_the_audit_says_what_it_knows():
    def judge(*packages):
        return audit.judge(json.dumps({"dependencies": packages}))

    clean = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
    skipped = {"name": "c", "skip_reason": "Dependency not found and could not be audited"}
    head = "pip-audit: 2 packages audited, 1 known vulnerabilities"
    assert judge(clean) == (0, "pip-audit: 1 packages audited, 0 known vulnerabilities")
    assert judge(clean, bad) == (1, f"{head}\n  b 2: PYSEC-1")
    assert judge(clean, bad, skipped) == (1, f"{head}; not audited: c\n  b 2: PYSEC-1")
    nothing = 0, "pip-audit reached no data: nothing is known about vulnerabilities"
    assert judge(skipped, skipped) == nothing  # pip-audit calls this a success
    assert judge() == audit.judge("") == audit.judge("connection refused") == nothing
