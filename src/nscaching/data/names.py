"""Finds entities and relations by what a user types: a name, a label, a short form, an id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property

import numpy as np

from nscaching.data.index import Ids
from nscaching.data.mapped_names import MappedNames
from nscaching.data.prefixes import Prefixes
from nscaching.errors import MOST, UserError, unknown

MANY = 1_000_000  # mapped names: of more, only exact names, labels and short forms are found
CHOICES = 5  # names that an ambiguous text offers
LOCAL = re.compile(r"[^\s\"]*[/#:]([^\s/#:\"]+)")  # what follows the last mark of a name


class NameLookup:
    """The names of the entities or of the relations of a graph.

    What each look-up needs is built when a text first asks for it: an exact name needs little.
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        names: Sequence[str],
        labels: Mapping[str, str],
        prefixes: Prefixes,
    ) -> None:
        self.kind, self.plural, self.names = kind, plural, names
        self.labels, self.prefixes = labels, prefixes

    def id_of(self, name: str | int) -> int:
        """Return the id by exact name, label, short form or local name, or in another case.

        The first of these that fits decides. A number is a name in a graph of numbers, else an id.
        """
        if not isinstance(name, str):
            return self._id_of_number(name)
        if (exact := self.exact(name)) is not None:
            return exact
        if self._mapped and len(self.names) > MANY:
            raise unknown_name(self.kind, name, self.names)
        for found, how in (
            (self._folded.get(name.casefold()), "labelled"),
            (self._local.get(name), "called"),
            (self._local_folded.get(name.casefold()), "called"),
        ):
            if found and len(found) > 1:
                raise self._question(name, found, how)
            if found:
                return found[0]
        known = dict.fromkeys(self._shown)
        if len(known) > MOST:  # then only those are named that are near, by label or by name
            known |= dict.fromkeys(self.names)
        raise unknown(self.kind, name, known)

    def exact(self, name: str | int) -> int | None:
        """Return the id by exact name, label or short form; None: nothing is called so."""
        if not isinstance(name, str):
            if not self._are_numbers:
                return self._id_of_number(name)
            name = str(name)
        if (number := self._number(name)) is not None:
            return number
        if (number := self._number(self.prefixes.expand(name))) is not None:
            return number
        labelled = self._labelled.get(name, [])
        if len(labelled) > 1:
            raise self._question(name, labelled, "labelled")
        return labelled[0] if labelled else None

    def ids_of(self, names: Iterable[str | int]) -> Ids:
        """Return the ids [n] of many names; each name is looked up once."""
        find = cache(self.id_of)
        return np.array([find(name) for name in names], dtype=np.int32)

    def shown(self, number: int) -> str:
        """Return the label of a name, or else its short form."""
        name = self.names[number]
        return self.labels.get(name) or self.short(name)

    def short(self, name: str) -> str:
        """Return ``prefix:rest`` for an IRI whose prefix is known, or the name as it is."""
        return self.prefixes.shorten(name) if "://" in name else name

    def _id_of_number(self, number: int) -> int:
        number = int(number)
        if self._are_numbers:
            if (found := self._number(str(number))) is not None:
                return found
            raise unknown_name(self.kind, str(number), self.names)
        if not 0 <= number < len(self.names):
            count = f"there are {len(self.names):,} {self.plural}"
            raise UserError(f"{self.kind} {number} is out of range: {count}")
        return number

    def _question(self, text: str, found: list[int], how: str) -> UserError:
        some = [self.short(self.names[i]) for i in found[:CHOICES]]
        names = ", ".join(some + ["…"] * (len(found) > CHOICES))
        return UserError(f"{len(found)} {self.plural} are {how} {text!r}; say which: {names}")

    @property
    def _mapped(self) -> MappedNames | None:
        return self.names if isinstance(self.names, MappedNames) else None

    def _number(self, name: str) -> int | None:
        return self._mapped.find(name) if self._mapped else self._ids.get(name)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _are_numbers(self) -> bool:
        return all(name.removeprefix("-").isdecimal() for name in self.names)

    @cached_property
    def _shown(self) -> list[str]:
        return [self.shown(i) for i in range(len(self.names))]

    @cached_property
    def _labelled(self) -> dict[str, list[int]]:
        if self._mapped:  # what is not labelled is shown by its name or its short form
            places: dict[str, list[int]] = {}
            numbers = {name: self._number(name) for name in self.labels}
            for number, name in sorted((i, name) for name, i in numbers.items() if i is not None):
                places.setdefault(self.labels[name], []).append(number)
            return places
        return _places([text] for text in self._shown)

    @cached_property
    def _folded(self) -> dict[str, list[int]]:
        both = zip(self.names, self._shown, strict=True)
        return _places({name.casefold(), shown.casefold()} for name, shown in both)

    @cached_property
    def _local(self) -> dict[str, list[int]]:
        return _places(_local_names(name) for name in self.names)

    @cached_property
    def _local_folded(self) -> dict[str, list[int]]:
        return _places(map(str.casefold, _local_names(name)) for name in self.names)


def _local_names(name: str) -> list[str]:
    """Return the local name of a name: ``Berlin`` of an IRI that ends in resource/Berlin."""
    found = LOCAL.fullmatch(name)
    return [found[1]] if found else []


def _places(texts: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Return for each text the places where it stands, ascending."""
    places: dict[str, list[int]] = {}
    for i, some in enumerate(texts):
        for text in some:
            places.setdefault(text, []).append(i)
    return places


def unknown_name(kind: str, name: str, names: Sequence[str], count: int | None = None) -> UserError:
    """Build the error for a name that none of the first names has; of many, none is called near."""
    count = len(names) if count is None else count
    if not isinstance(names, MappedNames) or count <= MANY:
        return unknown(kind, name, names[:count])
    some = ", ".join(names[:3])
    return UserError(f"unknown {kind} {name!r}; {count:,} are known, such as {some}")


def refuse_repeats(entities: Sequence[str], relations: list[str], where: str = "") -> None:
    for kind, names in (("entities", entities), ("relations", relations)):
        if not isinstance(names, MappedNames) and len(set(names)) < len(names):
            name = next(name for name, count in Counter(names).items() if count > 1)
            raise UserError(f"{where}two {kind} have the same name: {name!r}")
