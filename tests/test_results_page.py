"""docs/results.md and the tables beside it say what the lines of results say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nscaching.paper.reproduce import markdown
from nscaching.paper.reproduce.store import cell
from nscaching.paper.reproduce.tables import summaries
from nscaching.paper.reproduce.task import TASKS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import results_page  # noqa: E402


def test_tables_of_the_page_are_those_of_the_lines():
    page = (results_page.DOCS / "results.md").read_text(encoding="utf-8")
    assert results_page.with_tables(page) == page
    assert page.count("<!-- table: ") == len(results_page.TABLES)


@pytest.mark.parametrize("name", TASKS)
def test_tables_beside_the_page_are_those_of_the_lines(name):
    results = results_page.Results(TASKS[name])
    page = markdown.markdown(results.store, results.list, summaries(results.task, results.list))
    file = results_page.DOCS / "results" / f"{name}.md"
    assert file.read_text(encoding="utf-8") == page


@pytest.mark.parametrize("name", TASKS)
def test_each_cell_was_trained_with_the_settings_that_its_preset_has_now(name):
    results = results_page.Results(TASKS[name])
    first = [training for training in results.wanted if training.cell.seed == 1]
    done = {(*cell(line)[:-1], mark) for line, mark in results.store}
    assert len(first) > 20
    assert [str(t.cell) for t in first if (*t.cell[:-1], t.fingerprint) not in done] == []
