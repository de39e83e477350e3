"""The site builds without a warning, and what the pages tell to type can be typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nscaching
from nscaching.cli.main import _parse
from nscaching.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Short forms in running text that leave out what stands before: the folder, another flag.
SHORT = re.compile(r"…|\b[A-Z]{4,}|--help|^nscaching \S+( --\S+( \S+)?)?$")
PARTS = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?://[^\"' >]+)")
URL = re.compile(r"url\(\s*[\"']?(?:https?:)?//")


def commands(page):
    """Return the command lines of a page that begin with nscaching, without what follows them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^ {4}(?:\$ )?(nscaching [a-z].*)$", text, re.MULTILINE)
    spans = re.findall(r"`(nscaching [a-z][^`]*?)`", text)
    return [" ".join(line.split(" #")[0].split()) for line in (*lines, *spans)]


def test_the_site_builds_without_a_warning_and_asks_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    made = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout + made.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert PARTS.findall(text) == [], page
        assert "<!-- README" not in text
    for style in tmp_path.rglob("*.css"):
        assert not URL.search(style.read_text(encoding="utf-8")), style
    reference = (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert [name for name in nscaching.__all__ if f'id="nscaching.{name}"' not in reference] == [
        "__version__"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_lines_of_a_page_are_understood(page):
    for line in commands(page):
        words = shlex.split(line)[1:]
        assert words[0] in VERBS, line
        if not SHORT.search(line):
            _parse(words[0], words[1:])


def test_the_programs_that_pages_name_exist():
    for page in PAGES:
        for name in re.findall(r"`?python ((?:benchmarks|tools)/\w+\.py)", page.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{page.name}: {name}"


def test_programs_run_where_each_training_has_one_epoch(monkeypatch, tmp_path, capsys):
    """python.md, own-loop.md, extending.md, export.md and audit.md have tests of their own."""

    def shortened(name, **given):
        function = getattr(nscaching, name)
        return lambda *args, **asked: function(*args, **{**asked, **given})

    monkeypatch.chdir(tmp_path)
    quick = {"epochs": 1, "threads": 1}
    for name, given in {"train": {"dim": 8, **quick}, "tune": {"trials": 1, **quick}}.items():
        monkeypatch.setattr(nscaching, name, shortened(name, **given), raising=False)
    names = {}
    for page in ("README.md", "docs/calibration.md", "docs/tuning.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
        exec(compile(program, page, "exec"), names)
    assert "Portugal" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "tuning"}


def test_the_version_is_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = nscaching.__version__
    assert project["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    extras = project["optional-dependencies"]
    whole = set(extras["all"][0].removeprefix("nscaching[").removesuffix("]").split(","))
    assert whole == set(extras) - {"all", "dev", "world"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_beside_the_site_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
