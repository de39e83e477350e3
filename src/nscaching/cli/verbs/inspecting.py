"""The verb that looks into a run's cache."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.cli.verbs._base import Device, Json, RunPath, Trust

__all__ = ["Inspect"]


@dataclass(frozen=True)
class Inspect:
    """Show the cached negatives of (head, relation, ?) or of (?, relation, tail), by name.

    nscaching inspect runs/x --head Portugal --relation borders --sample 5
    """

    path: RunPath
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
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Look and print."""
        from nscaching.cli import show_cache
        from nscaching.runs.run import Run

        found = Run.load(self.path, self.device, self.trust).inspect(
            self.head or None,
            self.relation or None,
            self.tail or None,
            epoch=self.epoch,
            sample=self.sample,
            top=self.top,
            seed=self.seed,
        )
        show_cache.cache(found, self.json)
