"""The verb ``inspect``."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import print_table, say
from nscaching.cli.verbs._base import AskRun, Run
from nscaching.cli.verbs.predict import asked, named
from nscaching.runs.escaping import shorten

LONGEST = 80
"""Characters of a name that are shown; JSON has all of them."""


@dataclass(frozen=True, kw_only=True)
class Inspect(AskRun):
    """Show the cached negatives of (head, relation, ?) or of (?, relation, tail), by name.

    nscaching inspect runs/x --head Portugal --relation borders --sample 5
    """

    head: str = ""
    """The head entity of (head, relation, ?), by name or label."""
    relation: str = ""
    """The relation."""
    tail: str = ""
    """The tail entity of (?, relation, tail), instead of a head."""
    epoch: int | None = None
    """An epoch that --snapshots kept in training, or the last; None: the last, or all of them
    with --sample or --top."""
    sample: int | None = None
    """Show so many entities of each epoch, drawn by seed; None: all."""
    top: int | None = None
    """Show so many entities of each epoch, those that the run's model scores best; None: all."""
    seed: int = 0
    """Seed of --sample."""

    def ask(self, run: Run) -> dict[str, Any]:
        query = self.head or None, self.relation or None, self.tail or None
        epoch, sample = self.epoch, self.sample
        return run.inspect(*query, epoch=epoch, sample=sample, top=self.top, seed=self.seed)

    def show(self, run: Run, result: dict[str, Any]) -> None:
        side = "tails" if result["tail"] is None else "heads"
        of_relation = f"{side} of {shorten(result['relation'], LONGEST)} in training"
        epochs = result["epochs"]
        if len(epochs) == 1:
            _print_epoch(epochs[0], asked(result, LONGEST), of_relation)
        else:
            _print_epochs(epochs, asked(result, LONGEST), side)
            say(f"{side}: how many of them are {of_relation}")
        others = sorted(set(result["recorded"]) - {e["epoch"] for e in epochs})
        if others:
            recorded = ", ".join(map(str, others))
            say(f"other recorded epochs: {recorded}; --sample 5 shows all together")


def _print_epoch(epoch: dict[str, Any], query: str, of_relation: str) -> None:
    rows = [[named(e, LONGEST), f"{e['score']:.3f}", e["known"]] for e in epoch["entities"]]
    print_table([f"{query} at epoch {epoch['epoch']}", "score", "known"], rows)
    say(
        f"{epoch['distinct']} entities in {epoch['slots']} slots; "
        f"{epoch['known']} of them make known triples, {epoch['of_relation']} are {of_relation}"
    )


def _print_epochs(epochs: list[dict[str, Any]], query: str, side: str) -> None:
    rows = []
    for e in epochs:
        shares = [f"{e[count]}/{e['distinct']}" for count in ("known", "of_relation")]
        marked = [shorten(x["label"], LONGEST) + "*" * bool(x["known"]) for x in e["entities"]]
        rows.append([str(e["epoch"]), *shares, ", ".join(marked)])
    print_table(["epoch", "known", side, f"cache of {query}"], rows, words=[3])
    say("known: how many of all cached entities make known triples; here * marks them")
