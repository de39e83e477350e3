"""The dependency audit: what it takes for wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import audit  # noqa: E402
import hash_lock  # noqa: E402

PINS = {"a-b": "1.2", "torch": "2.13.0"}


@pytest.mark.parametrize(
    ("installed", "wrong"),
    [
        ([("A_b", "1.2"), ("torch", "2.13.0+cpu")], []),
        ([("nscaching", "0.1.0"), ("pip", "23"), ("nvidia-cublas-cu12", "12.1")], []),
        ([("a.b", "1.3")], ["a-b 1.3 is installed, 1.2 is pinned"]),
        ([("torch", "2.13.1+cpu")], ["torch 2.13.1+cpu is installed, 2.13.0 is pinned"]),
        ([("evil", "1.0")], ["evil 1.0 is installed and not pinned"]),
    ],
)
def test_what_is_not_as_pinned_is_named(installed, wrong):
    assert audit.differences(installed, PINS) == wrong


def test_the_pins_are_whole():
    pins = audit.read_pins((ROOT / "constraints.txt").read_text())
    assert {"torch", "numpy", "safetensors", "numba", "rich", "tyro"} <= set(pins)


@pytest.mark.parametrize("line", ["torch", "torch>=2", "torch==", "torch==2.*", "x @ file:///y"])
def test_a_line_that_pins_nothing_is_refused(line):
    with pytest.raises(ValueError, match="pins no version"):
        audit.read_pins(line)


def test_reports_of_pip_audit():
    def read(*parts):
        return audit.read_report(json.dumps({"dependencies": parts}))

    clean = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
    skipped = {"name": "c", "skip_reason": "Dependency not found and could not be audited"}
    assert read(clean, skipped) == audit.Report(1, ["c"], [])
    assert read(clean, bad) == audit.Report(2, [], ["b 2: PYSEC-1"])
    assert read(skipped, skipped) is None  # a success in name only
    assert read() is None
    assert audit.read_report("") is None
    assert audit.read_report("connection refused") is None


@pytest.mark.parametrize(
    ("report", "wrong", "code"),
    [
        (audit.Report(3, ["c"], []), [], 0),
        (audit.Report(3, [], ["x"]), [], 1),
        (None, [], 0),
        (None, ["y"], 1),
    ],
)
@pytest.mark.parametrize("by", ["pins", "hashes"])
def test_it_says_what_it_did(monkeypatch, capsys, report, wrong, code, by):
    monkeypatch.setattr(audit, "run_pip_audit", lambda: report)
    pins, hashes = (wrong, []) if by == "pins" else ([], wrong)
    monkeypatch.setattr(audit, "differences", lambda installed, pinned: list(pins))
    monkeypatch.setattr(hash_lock, "against", lambda installed, locked: (hashes, ["z 1"]))
    assert audit.main() == code
    said = capsys.readouterr().out
    assert said.startswith("audit by pip-audit: 3 " if report else "audit by pins and hashes (")
    assert ("no hash of these builds" in said) == (report is None)


def install(folder, text, extra=""):
    """Install a wheel of one module; return the distribution."""
    info = folder / "a_b-1.2.dist-info"
    info.mkdir(parents=True)
    (folder / "a_b.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: A_b\nVersion: 1.2\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "INSTALLER").write_text(extra)
    lines = []
    for path in ("a_b.py", *(f"{info.name}/{name}" for name in ("METADATA", "WHEEL", "INSTALLER"))):
        digest = hashlib.sha256((folder / path).read_bytes()).digest()
        value = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        lines.append(f"{path},sha256={value},{(folder / path).stat().st_size}\n")
    lines += [f"__pycache__/a_b{extra}.pyc,,\n", f"../../bin/a{extra},sha256=x,1\n"]
    (info / "RECORD").write_text("".join(lines) + f"{info.name}/RECORD,,\n")
    return PathDistribution(info)


BUILD = ("a-b", "1.2", "py3-none-any")


def test_a_wheel_has_one_hash_wherever_it_is_installed(tmp_path):
    one, same = install(tmp_path / "1", "x = 1", "pip"), install(tmp_path / "2", "x = 1", "other")
    other = install(tmp_path / "3", "x = 2", "pip")
    assert hash_lock.build_of(one) == BUILD
    assert hash_lock.hash_of(one) == hash_lock.hash_of(same) != hash_lock.hash_of(other)
    locked = {BUILD: hash_lock.hash_of(one)}
    assert hash_lock.against([one, same], locked) == ([], [])
    wrong = ["a-b 1.2: it is not made of what lock.txt says"]
    assert hash_lock.against([other], locked) == (wrong, [])
    assert hash_lock.against([one], {}) == ([], ["a-b 1.2"])


def test_what_was_changed_or_taken_away_later_is_named(tmp_path):
    part = install(tmp_path, "x = 1")
    locked = {BUILD: hash_lock.hash_of(part)}
    (tmp_path / "a_b.py").write_text("x = 3")
    changed = "a-b 1.2: a_b.py: it was changed after it was installed"
    assert hash_lock.against([part], locked) == ([changed], [])
    (tmp_path / "a_b.py").unlink()
    gone = "a-b 1.2: a_b.py: No such file or directory"
    assert hash_lock.against([part], locked) == ([gone], [])


def test_the_lock_is_written_and_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hash_lock, "LOCK", tmp_path / "lock.txt")
    part, old = install(tmp_path / "1", "x = 1"), ("a-b", "1.1", "py3-none-any")
    elsewhere = ("a-b", "1.2+cpu", "cp312-none-any")
    lines = [f"{name}=={version} {tag} {'0' * 64}\n" for name, version, tag in (old, elsewhere)]
    hash_lock.LOCK.write_text("# a comment\n" + "".join(lines))
    hash_lock.write([part], {"a-b": "1.2"})
    found = hash_lock.read_lock(hash_lock.LOCK.read_text())
    assert found == {elsewhere: "0" * 64, BUILD: hash_lock.hash_of(part)}
    with pytest.raises(ValueError, match="is not NAME==VERSION TAG SHA256"):
        hash_lock.read_lock("a-b==1.2 py3-none-any 00")


def test_all_that_is_pinned_has_a_hash():
    pins = audit.read_pins((ROOT / "constraints.txt").read_text())
    locked = hash_lock.read_lock(hash_lock.LOCK.read_text())
    assert {(name, version.partition("+")[0]) for name, version, _ in locked} == set(pins.items())
