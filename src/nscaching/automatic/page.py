"""The page of a search: one HTML file that needs nothing else, in the style of the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.runs.report.markup import templates

if TYPE_CHECKING:
    from nscaching.automatic.result import Auto

TEMPLATES = Path(__file__).with_name("templates")


def render(result: Auto) -> str:
    run = result.run
    return templates(TEMPLATES).get_template("auto.html").render(
        graph=result.graph,
        result=result,
        rows=result.leaderboard,
        models=sum(row["kind"] == "model" for row in result.leaderboard),
        valid=run.result("valid") if run else None,
        test=result.test,
        run_folder=run.path.name if run and run.path else "",
        advice=result.advice(),
        command=result.command(),
    )  # fmt: skip
