"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest

# Read before `_own_surroundings` takes it away.
_MIRROR = os.environ.get("NSCACHING_MIRROR")


def pytest_collection_finish():
    """Let no collection of garbage go through what stays: modules and thousands of tests.

    With them one takes half a second, and some trainings ask for one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_surroundings(tmp_path_factory):
    """Keep every test away from the user's cache and from the user's mirror."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSCACHING_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("NSCACHING_MIRROR", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _exact_products():
    """Compare twins without the rounding of products on GPUs."""
    from nscaching.kernels import products

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "ROUNDS", False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled(tmp_path_factory):
    """Let two workers in a fresh clone not compile the same."""
    from compiled import compile_together  # here: whoever only hands out tests needs no torch

    compile_together(tmp_path_factory.getbasetemp().parent)


@pytest.fixture
def ask(capsys):
    """Return a function that runs the command line and returns its JSON."""
    from nscaching.cli.main import main  # here: whoever only hands out tests needs no torch

    def run(*words):
        capsys.readouterr()
        main([*map(str, words), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Return the folder that holds the files of the benchmark data sets, or skip the test."""
    shared = Path(__file__).parents[2] / "shared" / "datasets"
    for folder in ([Path(_MIRROR)] if _MIRROR else []) + [shared]:
        if (folder / "openke").is_dir():
            return folder.resolve()
    pytest.skip("no benchmark data: NSCACHING_MIRROR names no folder that holds openke/")
