"""The command line: verbs only, each a dataclass whose fields are its flags."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, cast

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.errors import UserError, unknown, user_path

__all__ = ["main"]

RunPath = Annotated[Positional[Path], arg(metavar="RUN", help="A run folder.")]
Json = Annotated[bool, arg(help="Print JSON on standard output instead of a table.")]
Device = Literal["auto", "cpu", "cuda"]


class Verb(Protocol):
    """Something a user can ask for."""

    def run(self) -> None:
        """Do it."""


@dataclass(frozen=True)
class Datasets:
    """List the data sets that are known by name.

    nscaching datasets
    """

    json: Json = False

    def run(self) -> None:
        """Print what is known and what is on this machine already."""
        from nscaching import show

        show.datasets(self.json)


@dataclass(frozen=True)
class Train:
    """Train an embedding and write a run folder.

    nscaching train world --model TransE --sampler nscaching --epochs 100 --seed 1 --out runs/x
    """

    where: Annotated[
        Positional[str],
        arg(metavar="WHERE", help="A known data set, a folder with train/valid/test, or a file."),
    ] = ""
    settings: OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    out: str = ""
    """Run folder to write; empty: a new one under runs/."""
    overwrite: bool = False
    """Replace the run folder if it exists."""
    config: str = ""
    """TOML file of settings, such as a run's config.toml; flags win over it."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    json: Json = False

    def run(self) -> None:
        """Train, showing progress, and print the results."""
        from nscaching import show, work
        from nscaching.run_folder import default_out

        if not self.where:
            raise UserError("say what to train on: a known data set, a folder or a file")
        work.check(self.settings, self.out, self.overwrite)
        graph = work.load(self.where, self.labels, self.split_seed)
        if self.config:
            work.note_differences(graph, self.settings, user_path(self.config))
        show.graph(graph)
        out = self.out or default_out(graph, self.settings)
        show.run(work.train(graph, self.settings, out, self.overwrite), self.json)


@dataclass(frozen=True)
class Evaluate:
    """Rank the triples of a split: MRR, MR, Hit@1/3/10, by side, mapping class and relation.

    nscaching evaluate runs/x --split test --json
    """

    path: RunPath
    split: Literal["train", "valid", "test"] = "test"
    """Which triples to rank."""
    raw: bool = False
    """Let other known answers count too."""
    ties: Literal["realistic", "optimistic", "pessimistic"] = "realistic"
    """How equal scores rank."""
    memory_mb: int = 512
    """Memory for the scores of one chunk of queries."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Rank and print."""
        from nscaching import show, work
        from nscaching.run import Run

        if self.memory_mb < 1:
            raise UserError(f"--memory-mb must be at least 1, not {self.memory_mb}")
        run = Run.load(self.path, self.device)
        options = {"filtered": not self.raw, "ties": self.ties, "budget": self.memory_mb << 20}
        show.evaluation(run, work.evaluate(run, self.split, options), self.json)


@dataclass(frozen=True)
class Classify:
    """Tell true from false triples, by a threshold per relation fitted on validation.

    nscaching classify runs/x --json
    """

    path: RunPath
    split: Literal["valid", "test"] = "test"
    """Which triples to classify."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Classify and print."""
        from nscaching import show
        from nscaching.run import Run

        run = Run.load(self.path, self.device)
        show.classification(run, run.classify(self.split), self.json)


@dataclass(frozen=True)
class Predict:
    """Answer a triple with one gap, or judge a whole one; names or labels.

    nscaching predict runs/x --head Portugal --relation borders --top 5
    """

    path: RunPath
    head: str = ""
    """The head entity, by name or label; --head=NAME where it begins with a dash."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity; leave out what is asked for."""
    top: int = 10
    """How many answers."""
    known: Literal["hide", "mark"] = "hide"
    """Leave known facts out, or mark them."""
    device: Device = "auto"
    """Where to compute."""
    json: Json = False

    def run(self) -> None:
        """Predict and print."""
        from nscaching import show
        from nscaching.run import Run

        run = Run.load(self.path, self.device)
        answer = run.predict(
            self.head or None, self.relation or None, self.tail or None, self.top, self.known
        )
        show.prediction(answer, self.json)


@dataclass(frozen=True)
class Compare:
    """Compare runs: a table, and a plot of validation MRR against time.

    nscaching compare runs/a runs/b
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="Run folders.")]
    plot: str = ""
    """Image to write; empty: compare.png, or the next free name."""
    overwrite: bool = False
    """Replace the image if it exists."""
    json: Json = False

    def run(self) -> None:
        """Print the table and draw the plot."""
        from nscaching import show, work
        from nscaching.run import Run
        from nscaching.run_folder import free_path

        runs = [Run.load(path, "cpu") for path in self.paths]
        plot = user_path(self.plot) if self.plot else free_path(Path("compare.png"))
        show.comparison(runs, work.compare(runs, plot, self.overwrite), self.json)


@dataclass(frozen=True)
class Demo:
    """Train nscaching and Bernoulli sampling on the embedded data set and compare them.

    nscaching demo
    """

    out: str = ""
    """Folder for the two runs; empty: a new one under runs/."""
    epochs: int = 60
    """Epochs of each training."""
    json: Json = False

    def run(self) -> None:
        """Run the demonstration."""
        from nscaching import demo

        demo.run(self.out, self.epochs, self.json)


VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "datasets": Datasets,
    "train": Train,
    "evaluate": Evaluate,
    "classify": Classify,
    "predict": Predict,
    "compare": Compare,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, or 2 with one line on what is wrong with the input."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names on a terminal without UTF-8
    try:
        _dispatch(words)
        sys.stdout.flush()  # here, where an error of writing is still heard
    except KeyboardInterrupt:
        sys.stderr.write("nscaching: stopped\n")
        sys.exit(130)
    except BrokenPipeError:  # such as `nscaching … | head`
        sys.stderr.close()
        sys.exit(141)
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        if debug or not _is_outside(error):
            raise
        sys.exit(_complain(str(error) or "not enough memory"))


def _is_outside(error: Exception) -> bool:
    """Say whether an error comes from input, disk or memory; PyTorch has no class for the last."""
    lack = ("out of memory", "can't allocate memory")
    return not isinstance(error, RuntimeError) or any(words in str(error) for words in lack)


def _complain(message: str) -> int:
    one_line = " ".join(line.strip() for line in message.splitlines())
    printable = "".join(" " if unicodedata.category(c) == "Cc" else c for c in one_line)
    sys.stderr.write(f"nscaching: {printable}\n")
    return 2


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return
    if words[0] == "--version":
        sys.stdout.write(f"nscaching {__version__}\n")
        return
    if words[0] not in VERBS:
        raise unknown("verb", words[0], VERBS)
    _parse(words[0], words[1:]).run()


def _overview() -> str:
    lines = ["Knowledge-graph embedding with cache-based negative sampling.", "", "verbs:"]
    for name, verb in VERBS.items():
        summary, *_, example = (verb.__doc__ or "").strip().splitlines()
        lines += [f"  {name:10} {summary}", f"  {'':10}   {example.strip()}"]
    lines += ["", "nscaching VERB --help shows the flags of a verb; --debug shows tracebacks.", ""]
    return "\n".join(lines)


def _parse(name: str, words: list[str]) -> Verb:
    """Read the flags of a verb; what the parser has to say against them becomes one line."""
    verb = VERBS[name]
    summary, *_, example = (verb.__doc__ or "").strip().splitlines()
    default = _from_file(words) if verb is Train else None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed: Any = tyro.cli(
                verb,
                prog=f"nscaching {name}",
                description=f"{summary}\n\nExample: {example.strip()}",
                args=words,
                default=default,
            )
        return _of_other_data(parsed, default) if default else cast(Verb, parsed)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(
            f"{_first_sentence(said.getvalue())}; see nscaching {name} --help"
        ) from None


def _of_other_data(asked: Train, file: Train) -> Train:
    """Drop the labels that a configuration file names if other data than its own are asked for."""
    if file.where and asked.where != file.where and asked.labels == file.labels:
        return dataclasses.replace(asked, labels="")
    return asked


def _from_file(words: list[str]) -> Train | None:
    """Return the defaults of ``train``: those of the file that --config names, if it does."""
    paths = [
        words[i + 1] if word == "--config" else word.partition("=")[2]
        for i, word in enumerate(words)
        if word.startswith("--config=") or (word == "--config" and i + 1 < len(words))
    ]
    if not paths:
        return None
    from nscaching.run_folder import read_settings

    source, settings = read_settings(user_path(paths[-1]))
    return Train(
        where=source.data, settings=settings, labels=source.labels, split_seed=source.split_seed
    )


def _first_sentence(box: str) -> str:
    """Return the first paragraph of the parser's message: title, paragraphs and rules, framed."""

    def is_rule(line: str) -> bool:
        return set(line) <= set("─╰╯-")

    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    paragraph = itertools.takewhile(
        lambda line: not is_rule(line), itertools.dropwhile(is_rule, lines)
    )
    return (" ".join(paragraph) or " ".join(box.split())).rstrip(".")


if __name__ == "__main__":
    main()
