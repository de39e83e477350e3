"""The page about Python runs as it stands and prints what it says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
PART = re.compile(r"```python\n(.*?)```\n((?:\n(?: {4}[^\n]*\n)+)?)", re.DOTALL)
FIGURE = re.compile(r"-?\d+\.\d+")


def test_the_page_runs_and_prints_what_it_says(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {}
    parts = PART.findall(PAGE)
    assert len(parts) == 10
    for program, said in parts:
        exec(compile(program, "python.md", "exec"), names)
        found, expected = capsys.readouterr().out.split(), textwrap.dedent(said).split()
        # Another processor may round differently: figures are compared with tolerance.
        assert FIGURE.sub("#", " ".join(found)) == FIGURE.sub("#", " ".join(expected))
        figures = [
            [float(each) for each in FIGURE.findall(" ".join(some))] for some in (found, expected)
        ]
        assert figures[0] == pytest.approx(figures[1], rel=0.05, abs=0.1)
