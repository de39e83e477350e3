"""The settings of probes: one dataclass whose fields are flags and TOML keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, get_type_hints

from nscaching.config import MOST, TrainConfig, check_type, from_values
from nscaching.errors import UserError, check_bounds, flag


@dataclass(frozen=True)
class ProbeConfig:
    """What training measures besides loss and ranking. Every probe is off by default."""

    probe_repeats: int = 0
    """Every so many epochs, the share of negatives that occurred before in them; 0: off."""
    probe_changes: bool = False
    """After every epoch, how many elements of a cache row are new (nscaching)."""
    probe_test: bool = False
    """Rank the test triples with every validation, for figures; validation alone chooses."""
    watch: int = 0
    """Training triples, chosen by seed, whose score differences are recorded; 0: none."""
    watch_triple: tuple[str, ...] = ()
    """Triples to watch, each as head, tab, relation, tab, tail in one word."""
    watch_every: int = 20
    """Epochs between the records of watched triples; start and end are always recorded."""
    snapshots: tuple[int, ...] = ()
    """Epochs after which the whole cache is kept; 0: the start (nscaching)."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            object.__setattr__(self, name, check_type(flag(name), hint, getattr(self, name)))
        for triple in self.watch_triple:
            self.parts(triple)
        object.__setattr__(self, "snapshots", tuple(sorted(set(self.snapshots))))
        for name, least in {"probe_repeats": 0, "watch": 0, "watch_every": 1}.items():
            check_bounds(name, getattr(self, name), least, MOST)
        for epoch in self.snapshots:
            check_bounds("snapshots", epoch, 0, MOST)

    @staticmethod
    def parts(triple: str) -> tuple[str, str, str]:
        parts = triple.split("\t")
        if len(parts) != 3:
            raise UserError(
                f"{flag('watch_triple')} {triple!r} must be head, tab, relation, tab, tail; "
                r"in most shells $'head\trelation\ttail'"
            )
        return parts[0], parts[1], parts[2]

    def check(self, config: TrainConfig) -> None:
        """Refuse settings of a new run that are impossible or have no effect."""
        self.check_possible(config)
        # Not refused when a run resumes: older run folders may have this setting.
        every = self.watch_every
        if every != ProbeConfig.watch_every and not (self.watch or self.watch_triple):
            raise UserError(
                f"{flag('watch_every')} {every} goes with watched triples: "
                f"give {flag('watch')} or {flag('watch_triple')} too"
            )

    def check_possible(self, config: TrainConfig) -> None:
        """Refuse settings that contradict those of the training run, new or resumed."""
        epochs = f"{flag('epochs')} {config.epochs}"
        if self.probe_repeats > config.epochs:
            raise UserError(f"{flag('probe_repeats')} {self.probe_repeats} is more than {epochs}")
        if self.probe_test and not config.validate_every:
            needed = flag("validate_every")
            raise UserError(f"{flag('probe_test')} goes with validation: give {needed} too")
        if self.snapshots and self.snapshots[-1] > config.epochs:
            raise UserError(f"{flag('snapshots')} {self.snapshots[-1]} is beyond {epochs}")

    @property
    def on(self) -> bool:
        return replace(self, watch_every=ProbeConfig.watch_every) != ProbeConfig()

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "probes") -> ProbeConfig:
        """Build the settings from plain values; errors name ``where``, the key and the value."""
        return from_values(cls, get_type_hints(cls), values, where)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
