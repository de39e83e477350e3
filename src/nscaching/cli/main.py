"""The command line: reads a verb and its flags, and prints every error as one line."""

import contextlib
import dataclasses
import difflib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import tyro

from nscaching import __version__
from nscaching.cli.tables import note
from nscaching.cli.verbs import VERBS, Train, Tune, Verb
from nscaching.config import HINTS
from nscaching.errors import UserError, naming_flags, unknown
from nscaching.evaluation.chunks import is_shortage
from nscaching.runs.escaping import visible
from nscaching.sharded.torchrun import follows, is_launched

QUIET = "--quiet"
# The types that the parser names where a value is not a number.
NUMBERS = {"int": "a whole number", "float": "a number"}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, or 2 with one line on what is wrong with the input."""
    words = list(sys.argv[1:] if argv is None else argv)
    if is_launched():  # PyTorch's connections speak of each that another process ended
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    debug = "--debug" in words
    quiet = QUIET in words
    words = [word for word in words if word not in ("--debug", QUIET)]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names on a terminal without UTF-8
    try:
        with warnings.catch_warnings(), naming_flags(), _silence() if quiet else nullcontext():
            warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
            _dispatch(words)
        sys.stdout.flush()  # here, where an error of writing is still caught
    except KeyboardInterrupt as stop:
        if not follows():
            sys.stderr.write(f"nscaching: {str(stop) or 'stopped'}\n")
        sys.exit(getattr(stop, "code", 130))
    except BrokenPipeError:  # such as `nscaching … | head`
        sys.stderr.close()
        sys.exit(141)
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        # PyTorch raises a plain RuntimeError where memory is short. Any other one is a bug.
        if debug or (isinstance(error, RuntimeError) and not is_shortage(error)):
            raise
        if follows():  # another process tells
            sys.exit(2)
        one_line = " ".join(line.strip() for line in str(error).splitlines())
        sys.stderr.write(f"nscaching: {visible(one_line) or 'not enough memory'}\n")
        sys.exit(2)


@contextmanager
def _silence() -> Iterator[None]:
    """Let progress and notes vanish; errors are written after this block."""
    nowhere = Path(os.devnull)
    with nowhere.open("w", encoding="utf-8") as silent, contextlib.redirect_stderr(silent):
        yield


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
    elif words[0] == "--version":
        sys.stdout.write(f"nscaching {__version__}\n")
    elif words[0] in VERBS:
        _parse(words[0], words[1:]).run()
    else:
        raise unknown("verb", words[0], VERBS, len(VERBS))


def _summary_and_example(verb: type[Verb]) -> tuple[str, str]:
    summary, *_, example = (verb.__doc__ or "").strip().splitlines()
    return summary, example.strip()


def _overview() -> str:
    lines = ["Knowledge-graph embedding with cache-based negative sampling.", "", "verbs:"]
    for name, verb in VERBS.items():
        summary, example = _summary_and_example(verb)
        lines += [f"  {name:10} {summary}", f"  {'':10}   {example}"]
    more = f"{QUIET} shows results and errors alone; --debug shows tracebacks."
    lines += ["", "nscaching VERB --help shows the flags of a verb. With any verb:", more, ""]
    return "\n".join(lines)


def _parse(name: str, words: list[str]) -> Verb:
    """Read the flags of a verb. An error message of the parser becomes one line."""
    summary, example = _summary_and_example(VERBS[name])
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed = tyro.cli(
                VERBS[name],
                prog=f"nscaching {name}",
                description=f"{summary}\n\nExample: {example}",
                args=words,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        cause = stop.__context__
        while cause is not None and not isinstance(cause, UserError):
            cause = cause.__context__
        if cause is not None:  # the error of a dataclass that checks its fields
            raise cause from None
        reason = _reason(printed.getvalue()) + _meant_flag(name, words, printed.getvalue())
        raise UserError(f"{reason}; see nscaching {name} --help") from None
    # The parser does not tell a flag with the default value from one that is left out.
    flags = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
    given = [flag.replace("-", "_").removeprefix("no_") for flag in flags]
    if isinstance(parsed, Train):
        return parsed.with_flags(given)
    if isinstance(parsed, Tune):
        return dataclasses.replace(parsed, given=tuple(n for n in HINTS if n in given))
    return parsed


def _meant_flag(name: str, words: list[str], box: str) -> str:
    """Return a question: which flag of the verb was meant by one that is unknown."""
    if "Unrecognized options" not in box:
        return ""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        tyro.cli(VERBS[name], prog=f"nscaching {name}", args=["--help"])
    flags = {QUIET, *re.findall(r"--[a-z][a-z0-9-]*", shown.getvalue())}
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag.replace("_", "-") not in flags:
            near = difflib.get_close_matches(flag, sorted(flags), n=1, cutoff=0.75)
            return f"; did you mean {near[0]}?" if near else ""
    return ""


def _reason(box: str) -> str:
    """Return the first paragraph of a framed message of the parser, in words of the user's."""
    body = box.partition("\n")[2]  # without the title
    paragraphs = re.split(r"^[ │─╰╯-]*$", body, flags=re.MULTILINE)
    first = next(filter(str.strip, paragraphs), box)
    sentence = " ".join(line.strip("│ ") for line in first.split("\n")).strip().rstrip(".")
    for kind, words in NUMBERS.items():
        message = rf"Error parsing (--\S+): [^'\"]*\b{kind}\b[^'\"]*(['\"].*['\"])\]?"
        sentence = re.sub(message, rf"\1 takes {words}, not \2", sentence, flags=re.IGNORECASE)
    return sentence
