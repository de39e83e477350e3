"""The command line: words become a verb, and what is wrong with them one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import tyro

from nscaching import __version__
from nscaching.cli.verbs import VERBS, Train, Tune, Verb
from nscaching.config import TrainConfig
from nscaching.errors import UserError, unknown, user_path
from nscaching.evaluation.chunks import is_shortage
from nscaching.runs.escaping import visible

__all__ = ["main"]

T = TypeVar("T", Train, TrainConfig)

# What may be said anew when a training goes on: none of it changes what was done already.
RESUMABLE = {"--resume", "--checkpoint-every", "--device", "--kernels", "--threads", "--epochs"}
RESUMABLE |= {"--json", "--no-json", "--trust", "--no-trust", "--help"}

# How the parser says that a value is no number.
NO_NUMBER = {
    r"invalid literal for int\(\) with base 10: (.*)": "a whole number",
    r"no type matching \{None\}\|INT could be instantiated from \[(.*)\]": "a whole number",
    r"could not convert string to float: (.*)": "a number",
    r"no type matching \{None\}\|FLOAT could be instantiated from \[(.*)\]": "a number",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, or 2 with one line on what is wrong with the input."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names on a terminal without UTF-8
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            _dispatch(words)
        sys.stdout.flush()  # here, where an error of writing is still heard
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"nscaching: {str(stop) or 'stopped'}\n")
        sys.exit(getattr(stop, "code", 130))
    except BrokenPipeError:  # such as `nscaching … | head`
        sys.stderr.close()
        sys.exit(141)
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        if debug or not _is_outside(error):
            raise
        sys.exit(_complain(str(error) or "not enough memory"))


def _is_outside(error: Exception) -> bool:
    """Say whether an error comes from input, disk or memory; PyTorch has no class for the last."""
    return not isinstance(error, RuntimeError) or is_shortage(error)


def _note(message: Warning | str, *rest: object, **more: object) -> None:
    """Say what the library warns of; where in the program it did is nothing to a user."""
    sys.stderr.write(f"note: {visible(str(message))}\n")


def _complain(message: str) -> int:
    one_line = " ".join(line.strip() for line in message.splitlines())
    sys.stderr.write(f"nscaching: {visible(one_line)}\n")
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
    if verb is Train and _values(words, "--resume"):
        _check_resume(words)
    default = _defaults(words) if verb is Train else None
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
        if isinstance(parsed, Train | Tune):
            parsed = dataclasses.replace(parsed, given=_given(words))
        return _of_other_data(parsed, default) if default else cast(Verb, parsed)
    except SystemExit as stop:
        if not stop.code:
            raise
        said_plainly = _plainly(_first_sentence(said.getvalue()))
        raise UserError(f"{said_plainly}; see nscaching {name} --help") from None


def _check_resume(words: list[str]) -> None:
    """Refuse flags that would make it another run: all settings come from its folder."""
    flags = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    for flag in flags:
        if flag not in RESUMABLE:
            raise UserError(f"--resume takes all settings from the run folder: leave out {flag}")


def _given(words: list[str]) -> tuple[str, ...]:
    """Return the settings that flags name, whatever their value."""
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    named = {name.removeprefix("--").replace("-", "_") for name in flags}
    return tuple(
        field.name
        for field in dataclasses.fields(TrainConfig)
        if named & {field.name, f"no_{field.name}"}
    )


def _of_other_data(asked: Train, file: Train) -> Train:
    """Drop the labels that a configuration file names if other data than its own are asked for."""
    if file.where and asked.where != file.where and asked.labels == file.labels:
        return dataclasses.replace(asked, labels="")
    return asked


def _defaults(words: list[str]) -> Train | None:
    """Return the defaults of ``train``: those of --config or --preset, if it is given."""
    paths, names = _values(words, "--config"), _values(words, "--preset")
    given = [f"--config {path}" for path in paths] + [f"--preset {name}" for name in names]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} each say all settings: give one of them")
    if names:
        from nscaching.paper import presets

        data, settings = presets.load(*presets.parse(names[0]))
        return Train(where=data, settings=settings)
    if not paths:
        return None
    from nscaching.runs.settings import read_probes, read_settings

    path = user_path(paths[0])
    source, settings = read_settings(path)
    file = Train(
        where=source.data,
        settings=settings,
        probes=read_probes(path),
        labels=source.labels,
        split_seed=source.split_seed,
        literals=source.literals,
    )
    # The help shows these as they are.
    asked = {"-h", "--help"} & set(words)
    return dataclasses.replace(_shown(file), settings=_shown(settings)) if asked else file


def _shown(values: T) -> T:
    """Return a dataclass whose texts no terminal obeys."""
    texts: dict[str, Any] = {
        field.name: visible(text)
        for field in dataclasses.fields(values)
        if isinstance(text := getattr(values, field.name), str)
    }
    return dataclasses.replace(values, **texts)


def _values(words: list[str], flag: str) -> list[str]:
    """Return what stands behind a flag, each time it is given."""
    return [
        words[i + 1] if word == flag else word.partition("=")[2]
        for i, word in enumerate(words)
        if word.startswith(f"{flag}=") or (word == flag and i + 1 < len(words))
    ]


def _first_sentence(box: str) -> str:
    """Return the first paragraph of the parser's message: title, paragraphs and rules, framed."""

    def is_rule(line: str) -> bool:
        return set(line) <= set("─╰╯-")

    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    paragraph = itertools.takewhile(
        lambda line: not is_rule(line), itertools.dropwhile(is_rule, lines)
    )
    return (" ".join(paragraph) or " ".join(box.split())).rstrip(".")


def _plainly(sentence: str) -> str:
    """Put what the parser says of a wrong number into words of the user's."""
    for pattern, kind in NO_NUMBER.items():
        sentence = re.sub(
            f"Error parsing (--\\S+): {pattern}", rf"\1 takes {kind}, not \2", sentence
        )
    return sentence


if __name__ == "__main__":
    main()
