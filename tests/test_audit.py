"""The dependency audit: what it takes for wrong."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
audit = importlib.util.module_from_spec(spec)
sys.modules["audit"] = audit  # where dataclasses look
spec.loader.exec_module(audit)

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
        (audit.Report(3, ["c"], []), None, 0),
        (audit.Report(3, [], ["x"]), None, 1),
        (None, [], 0),
        (None, ["y"], 1),
    ],
)
def test_it_says_what_it_did(monkeypatch, capsys, report, wrong, code):
    monkeypatch.setattr(audit, "run_pip_audit", lambda: report)
    monkeypatch.setattr(audit, "differences", lambda installed, pins: wrong)
    assert audit.main() == code
    said = capsys.readouterr().out
    assert said.startswith("audit by pip-audit: 3 " if report else "audit by pins (")
