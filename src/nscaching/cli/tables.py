"""Results on standard output: tables for people, JSON for programs. Notes on standard error."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

from nscaching.errors import UserError
from nscaching.runs.escaping import json_text, visible

LONGEST = 2000  # characters of a cell; JSON has all of them
WIDEST, FOLDED = 16, 9  # characters of a figure, and of a name however narrow a terminal is

HEADINGS = {"mrr": "MRR", "mr": "MR", "hits@1": "Hit@1", "hits@3": "Hit@3", "hits@10": "Hit@10"}
"""The headings of the metrics of a ranking."""

# Of figures that are shown in another way than a share.
FORMATS = {"mr": ",.1f"} | dict.fromkeys(["threshold", "score", "probability"], ".3f")


def print_json(value: object) -> None:
    """Print JSON; in ASCII where the output knows no more."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = json.dumps(value, indent=2, ensure_ascii=plain, allow_nan=False)
    except ValueError:
        raise UserError("a figure is not a number: the run is damaged or diverged") from None
    sys.stdout.write(json_text(text) + "\n")


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    words: Sequence[int] = (0,),
) -> None:
    """Print a table. The columns in ``words`` hold text, all others figures.

    The terminal shows control characters and markup of a cell as text.
    """
    from rich.console import Console  # here: ``nscaching --help`` need not wait for rich
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_shown(title)) if title else None, title_justify="left", box=None)
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    # Names are folded where the terminal is narrow, figures are not.
    least = [min(width, FOLDED if i in words else WIDEST) for i, width in enumerate(widths)]
    for i, heading in enumerate(headings):
        text, min_width = Text(_shown(heading), style="bold"), least[i]
        justify: Literal["left", "right"] = "left" if i in words else "right"
        table.add_column(text, justify=justify, overflow="fold", min_width=min_width)
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1 << 16  # in a file or a pipe, no line of a table is broken
    elif sum(widths) + 2 * len(widths) > console.width:
        table.padding, table.pad_edge = (0, 1, 0, 0), False
        console.width = max(console.width, sum(least) + len(least))
    console.print(table)


def _shown(text: str) -> str:
    """Return the part of a text that is shown: a name may have a million characters."""
    return visible(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{_shown(line)}\n" for line in lines)


def note(line: str) -> None:
    sys.stderr.write(f"{visible(line)}\n")


def cells(values: dict[str, Any], *names: str) -> list[str]:
    """Return figures as cells of a table, empty where there is none; by default of a ranking."""
    return [_cell(name, values[name]) if name in values else "" for name in names or HEADINGS]


def _cell(name: str, value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:{FORMATS.get(name, '.4f')}}"
