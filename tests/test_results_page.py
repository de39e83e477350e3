"""docs/results.md and the tables beside it say what the lines of results say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nscaching.paper.published import TABLES
from nscaching.paper.reproduce.table import markdown, summaries

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import results_page  # noqa: E402


def test_tables_of_the_page_are_those_of_the_lines():
    page = (results_page.DOCS / "results.md").read_text(encoding="utf-8")
    assert results_page.with_tables(page) == page
    assert page.count("<!-- table: ") == len(results_page.PAGE_TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_tables_beside_the_page_are_those_of_the_lines(name):
    found = results_page.Results(TABLES[name])
    page = markdown(found.results, found.list, summaries(found.table, found.list))
    file = results_page.DOCS / "results" / f"{name}.md"
    assert file.read_text(encoding="utf-8") == page


@pytest.mark.parametrize("name", TABLES)
def test_each_cell_was_trained_with_the_settings_that_its_preset_has_now(name):
    found = results_page.Results(TABLES[name])
    first = [training for training in found.wanted if training.config.seed == 1]
    done = {(result.cell, result.settings) for result in found.results.list}
    assert len(first) > 20
    assert [str(t) for t in first if (t.cell, t.fingerprint) not in done] == []
