"""The notebook of the examples runs, and says what its stored outputs say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient and nbformat are not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first-graph.ipynb"
FIGURE = re.compile(r"\s*\d+(\.\d+)?")


def texts(notebook):
    """Return what each cell of code shows as text, without figures and the layout by them."""
    return [
        FIGURE.sub("#", str(output.get("text") or output["data"].get("text/plain")))
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own libraries
def test_the_notebook_runs(tmp_path):
    stored = nbformat.read(NOTEBOOK, as_version=4)
    assert NOTEBOOK.stat().st_size < 200_000
    assert texts(stored)[-1].startswith("<Figure")
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert texts(fresh) == texts(stored)
