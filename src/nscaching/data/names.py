"""Names of entities and relations: no name twice; ids by name, else by label."""

from collections import Counter
from collections.abc import Mapping, Sequence

from nscaching.errors import UserError, unknown


def refuse_repeats(entities: list[str], relations: list[str], where: str = "") -> None:
    """Raise a UserError if two entities or two relations have the same name."""
    for kind, names in (("entities", entities), ("relations", relations)):
        if len(set(names)) < len(names):
            name = next(name for name, count in Counter(names).items() if count > 1)
            raise UserError(f"{where}two {kind} have the same name: {name!r}")


class NameLookup:
    """Finds the id of an entity or a relation by what a user types."""

    def __init__(
        self, kind: str, plural: str, names: Sequence[str], labels: Mapping[str, str]
    ) -> None:
        self.kind, self.plural, self.names = kind, plural, names
        self.shown = [labels.get(name, name) for name in names]
        self.ids = {name: i for i, name in enumerate(names)}
        self.folded: dict[str, list[int]] = {}
        for i, (name, label) in enumerate(zip(names, self.shown, strict=True)):
            for text in {name.casefold(), label.casefold()}:
                self.folded.setdefault(text, []).append(i)

    def id_of(self, text: str) -> int:
        """Return the id by exact name, exact label, or either in another case; in this order."""
        if text in self.ids:
            return self.ids[text]
        same = self.folded.get(text.casefold(), [])
        same = [i for i in same if self.shown[i] == text] or same
        if len(same) == 1:
            return same[0]
        if same:
            names = ", ".join(self.names[i] for i in same[:5])
            raise UserError(f"{len(same)} {self.plural} are labelled {text!r}; say which: {names}")
        raise unknown(self.kind, text, dict.fromkeys([*self.shown, *self.names]))
