"""The model card: what a reader of a run folder wants to know, in plain Markdown."""

from __future__ import annotations

import dataclasses
import shlex
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.config import TrainConfig
from nscaching.errors import as_flag
from nscaching.runs.escaping import markdown, visible
from nscaching.evaluation.ranking import METRICS
from nscaching.files import write_text
from nscaching.probes import ProbeConfig

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["command", "write_card"]


RANKED = """| split | MRR | MR | Hit@1 | Hit@3 | Hit@10 |
|---|---|---|---|---|---|
{rows}

Filtered ranking: other known answers, from all splits, do not count. Both sides of every triple
are ranked among all {entities:,} entities. Ties: realistic (the mean of the best and
the worst possible rank). Hit@k counts ranks up to k.

"""
PROBED = """
Left by probes, where they were asked for: `scores.jsonl` the score differences of watched triples,
`snapshots/` the cache after some epochs.
"""


def command(run: Run) -> str:
    """Return the command line that repeats a run: every setting that is not the default."""
    words = ["nscaching", "train", run.graph.source.data or run.graph.name]
    if run.graph.source.labels:
        words += ["--labels", run.graph.source.labels]
    if run.graph.source.split_seed:
        words += ["--split-seed", str(run.graph.source.split_seed)]
    if run.graph.source.literals:
        words.append("--literals")
    for field in dataclasses.fields(TrainConfig):
        value = getattr(run.config, field.name)
        if field.name in ("model", "sampler", "epochs", "seed") or value != field.default:
            if isinstance(value, bool):
                words.append(as_flag(field.name) if value else as_flag(f"no_{field.name}"))
            else:
                words += [as_flag(field.name), str(value)]
    for name, value in run.probes.to_dict().items():
        if value != getattr(ProbeConfig(), name):
            words.append(as_flag(name))
            if not isinstance(value, bool):
                words += map(str, value if isinstance(value, tuple) else [value])
    return " ".join(map(_quoted, [*words, "--out", run.name]))


def _quoted(word: str) -> str:
    """Quote a word for a shell, and keep it on one line."""
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
    graph = run.graph
    rows = [
        f"| {split} | " + " | ".join(_figure(name, result[name]) for name in METRICS) + " |"
        for split in ("valid", "test")
        if (result := run.result(split)) is not None
    ]
    ranked = RANKED.format(rows="\n".join(rows), entities=len(graph.entities)) if rows else ""
    notes = "".join(f"- {markdown(note)}\n" for note in graph.notes)
    data = markdown(graph.source.data or graph.name)
    title = f"{run.config.model} with {run.config.sampler} on {graph.name}"
    name = visible(shlex.quote(run.name))
    device = run.model.entity.device.type
    best = "the best by validation MRR" if run.result("valid") else "the last"
    text = f"""# {markdown(title)}

A knowledge-graph embedding trained by nscaching: it scores triples (head, relation, tail), higher
meaning more plausible.

## Data

{data}: {len(graph.entities):,} entities and {len(graph.relations):,}
relations; {len(graph.train):,} training, {len(graph.valid):,} validation and
{len(graph.test):,} test triples.

{notes}
## Command

    {visible(command(run))}

or, with every setting as it was, `nscaching train --config config.toml --out NEW_FOLDER`.

## Results

Parameters of epoch {run.best_epoch}, {best}; {run.train_seconds:.1f} seconds of training
on {device}, evaluation apart.

{ranked}![loss and validation MRR against time](training.png)

## Files

`config.toml` the settings; `metrics.jsonl` a line per epoch and ranking; `model.safetensors`
the parameters; `cache.safetensors` what the sampler kept at the end of training, if it keeps
anything (a cache, a generator); `vocabulary.json` and `triples.safetensors` names and data;
`report.html` all of this to look at, with results by relation, examples and the cache.
{PROBED if run.probes.on else ""}
    nscaching evaluate {name}
    nscaching predict {name} --head NAME --relation NAME
"""
    write_text(path, text)


def _figure(name: str, value: float) -> str:
    return f"{value:,.1f}" if name == "mr" else f"{value:.4f}"
