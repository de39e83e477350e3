"""The model card of a run folder, in plain Markdown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.config import BY_GRAPH, TrainConfig
from nscaching.data.graph import Source
from nscaching.errors import as_flag, counted
from nscaching.files import write_text
from nscaching.probes import ProbeConfig
from nscaching.runs.escaping import markdown, visible
from nscaching.runs.folder import split_name

if TYPE_CHECKING:
    from nscaching.runs.run import Run

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ALWAYS = {*BY_GRAPH, "seed"}  # said even where they are the defaults
TEMPLATE = Path(__file__).with_name("card.md")


def command(run: Run) -> str:
    """Return the command line that repeats a run: every setting that is not the default."""
    words = ["nscaching", "train", run.graph.source.data or run.graph.name]
    settings = vars(run.graph.source) | run.config.flat() | run.probes.to_dict()
    defaults = vars(Source()) | TrainConfig().flat() | ProbeConfig().to_dict()
    for name, value in settings.items():
        if name == "data" or value is None or (value == defaults[name] and name not in ALWAYS):
            continue
        if isinstance(value, bool):
            words.append(as_flag(name if value else f"no_{name}"))
        else:
            words += [as_flag(name), *map(str, value if isinstance(value, tuple) else [value])]
    return " ".join(map(_quoted, [*words, "--out", run.name]))


def _quoted(word: str) -> str:
    if not CONTROL.search(word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", plain) + "'"


def kept(run: Run) -> str:
    """Say what the parameters are."""
    if extended := run.record.get("extended"):
        new = counted(extended["new_entities"], "new entity", "new entities")
        return f"those of {extended['from']}, with vectors for {new}"
    return "the best by validation MRR" if run.result("valid") else "the last"


def write_card(run: Run, path: Path) -> None:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> str:
        return value if isinstance(value, Markup) else markdown(str(value))

    # Markdown, not HTML: every printed value goes through ``markdown``.
    environment = Environment(  # noqa: S701
        finalize=shown, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        run=run,
        graph=run.graph,
        kept=kept(run),
        command=command(run),
        quoted_name=shlex.quote(run.name),
        results={split_name(each): each for s in ("valid", "test") if (each := run.result(s))},
        count=lambda rows: f"{len(rows):,}",
        visible=lambda text: Markup(visible(text)),  # noqa: S704  (in a block of code)
    )
    write_text(path, text)
