"""The short form of an IRI, ``dbr:Berlin``, and back."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

WELL_KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class Prefixes:
    """IRIs as people read them: ``dbr:Berlin`` for an IRI that ends in dbpedia.org/resource/Berlin.

    By the prefixes of the files themselves, then by the well-known ones.
    """

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self.own: dict[str, str] = {}  # prefix → namespace, as files declare them
        self.add(own or {})

    def add(self, prefixes: Mapping[str, str]) -> None:
        """Add the prefixes that a file declares; a prefix that was declared before stays."""
        self.own = {**prefixes, **self.own}
        self._known = known = WELL_KNOWN | self.own  # the declarations of a file go first
        own_last = sorted(known, key=lambda prefix: prefix in self.own)
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

    def expand(self, text: str) -> str:
        """Return the IRI of ``prefix:rest``, or an empty text where the prefix is unknown."""
        prefix, colon, rest = text.partition(":")
        namespace = self._known.get(prefix, "") if colon else ""
        return namespace and namespace + rest
