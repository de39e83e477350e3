"""What was drawn, on standard output; notes go to standard error."""

from rich.console import Console
from rich.text import Text

from nscaching.cli.tables import print_json, say
from nscaching.paper.figures import Drawn


def drawn(kind: str, drawn: Drawn, as_json: bool) -> None:
    """Say which files were written."""
    console = Console(stderr=True, highlight=False)
    for note in drawn.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    if as_json:
        files = [str(path) for path in drawn.files]
        print_json({"kind": kind, "files": files, "notes": drawn.notes})
        return
    for path in drawn.files:
        say(str(path))
