"""The model card of a run folder, in plain Markdown."""

from __future__ import annotations

import shlex
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.config import TrainConfig
from nscaching.errors import as_flag
from nscaching.files import write_text
from nscaching.probes import ProbeConfig
from nscaching.runs.escaping import markdown, visible

if TYPE_CHECKING:
    from nscaching.runs.run import Run

TEMPLATE = Path(__file__).with_name("card.md")


def command(run: Run) -> str:
    """Return the command line that repeats a run: every setting that is not the default."""
    words = ["nscaching", "train", run.graph.source.data or run.graph.name]
    if run.graph.source.labels:
        words += ["--labels", run.graph.source.labels]
    if run.graph.source.split_seed:
        words += ["--split-seed", str(run.graph.source.split_seed)]
    if run.graph.source.literals:
        words.append("--literals")
    defaults = TrainConfig().flat()
    for name, value in run.config.flat().items():
        if name in ("model", "sampler", "epochs", "seed") or value != defaults[name]:
            if isinstance(value, bool):
                words.append(as_flag(name) if value else as_flag(f"no_{name}"))
            else:
                words += [as_flag(name), str(value)]
    for name, value in run.probes.to_dict().items():
        if value != getattr(ProbeConfig(), name):
            words.append(as_flag(name))
            if not isinstance(value, bool):
                words += map(str, value if isinstance(value, tuple) else [value])
    return " ".join(map(_quoted, [*words, "--out", run.name]))


def _quoted(word: str) -> str:
    """Quote a word for a shell, on one line."""
    if not any(unicodedata.category(c) == "Cc" for c in word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "$'"
        + "".join(f"\\x{ord(c):02x}" if unicodedata.category(c) == "Cc" else c for c in plain)
        + "'"
    )


def write_card(run: Run, path: Path) -> None:
    """Write the card of a run."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> str:
        return value if isinstance(value, Markup) else markdown(str(value))

    # Markdown, not HTML: every printed value goes through ``markdown``.
    environment = Environment(  # noqa: S701
        finalize=shown, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    found = {split: run.result(split) for split in ("valid", "test")}
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        run=run,
        graph=run.graph,
        command=command(run),
        quoted_name=shlex.quote(run.name),
        results={split: result for split, result in found.items() if result is not None},
        count=lambda rows: f"{len(rows):,}",
        visible=lambda text: Markup(visible(text)),  # noqa: S704  (in a block of code)
    )
    write_text(path, text)
