"""IRIs as people read them: ``dbr:Berlin`` for http://dbpedia.org/resource/Berlin."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

TABLE = Path(__file__).with_suffix(".toml")
WELL_KNOWN: dict[str, str] = tomllib.loads(TABLE.read_text(encoding="utf-8"))


class Prefixes:
    """Prefixes of the files themselves, then the well-known ones."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self.add({})

    def add(self, prefixes: Mapping[str, str]) -> None:
        """Add the prefixes that a file declares; a prefix that was declared before stays."""
        self._own = {**prefixes, **self._own}
        known = WELL_KNOWN | self._own  # the declarations of a file go first
        own_last = sorted(known, key=lambda prefix: prefix in self._own)
        self._by_namespace = {known[prefix]: prefix for prefix in own_last if known[prefix]}

    def shorten(self, name: str) -> str:
        """Return ``prefix:rest`` for an IRI (or the type of a literal), or the name as it is."""
        if name.startswith('"'):
            text, mark, kind = name.rpartition("^^<")
            return f"{text}^^{self.shorten(kind[:-1])}" if mark and name.endswith(">") else name
        end = len(name) - 1
        while (end := max(name.rfind(mark, 0, end) for mark in "/#:_-") + 1) > 0:
            prefix = self._by_namespace.get(name[:end])
            if prefix is not None:
                return f"{prefix}:{name[end:]}"
            end -= 1
        return name


def is_short_form(label: str, name: str) -> bool:
    """Say whether a label is only the name shortened by a prefix."""
    _, colon, rest = label.partition(":")
    return bool(colon and rest) and ":" in name and label != name and name.endswith(rest)
