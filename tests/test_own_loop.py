"""The page about other people's training loops runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "own-loop.md").read_text(encoding="utf-8")


def test_the_page_runs_as_it_stands(capsys):
    outline, program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "cache.sample(h, r, t)" in outline
    exec(compile(program, "own-loop.md", "exec"), {})
    printed = capsys.readouterr().out
    without, with_cache = (float(mrr) for mrr in re.findall(r"test MRR ([\d.]+)", printed))
    assert with_cache > 1.2 * without  # as the page says of 20 epochs with Bernoulli's rule
    assert "n1=10, n2=10" in printed
    assert printed.count("'") == 6
