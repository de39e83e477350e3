"""The names of a large graph: bytes and places in arrays, which may lie on the disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from nscaching.data.checks import in_range
from nscaching.data.index import Ids, Longs
from nscaching.data.readers.name_table import END

BLOCK = 1 << 16  # names that are decoded together


class MappedNames(Sequence[str]):
    """Distinct names by number, decoded when they are asked for; ``find`` is the way back.

    ``text`` holds the names in UTF-8, each ended by END. Name i is ``text[ends[i]:ends[i + 1]]``,
    END included. ``order`` [n] are the numbers of the names in the order of their bytes.
    """

    def __init__(self, text: npt.NDArray[np.uint8], ends: Longs, order: Ids) -> None:
        self.text, self.ends, self.order = text, ends, order

    @classmethod
    def of(cls, names: Iterable[str]) -> MappedNames:
        """Return the arrays of some distinct names, in memory."""
        raw = [f"{name}{END}".encode() for name in names]
        text = np.frombuffer(bytearray(b"".join(raw)), np.uint8)
        order = sorted(range(len(raw)), key=lambda i: raw[i])
        return cls(text, np.append(0, ends_of(text)), np.array(order, np.int32))

    def fits(self) -> bool:
        """Say whether the arrays belong together."""
        ends, count = self.ends, len(self.order)
        return bool(
            len(ends) == count + 1
            and ends[0] == 0
            and ends[-1] == len(self.text)
            and (np.diff(ends) > 1).all()
            and (self.text[ends[1:] - 1] == ord(END)).all()
            and in_range(self.order[:, None], count)
        )

    def find(self, name: str) -> int | None:
        """Return the number of a name, or None."""
        raw = name.encode(errors="surrogatepass") + END.encode()
        place = bisect_left(self.order, raw, key=self._raw)
        if place < len(self) and self._raw(number := int(self.order[place])) == raw:
            return number
        return None

    def _raw(self, number: int) -> bytes:
        return self.text[self.ends[number] : self.ends[number + 1]].tobytes()

    def _part(self, begin: int, end: int) -> list[str]:
        text = self.text[self.ends[begin] : self.ends[end]].tobytes().decode(errors="replace")
        return text.split(END)[:-1]

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice[Any, Any, Any]) -> list[str]: ...
    def __getitem__(self, place: SupportsIndex | slice[Any, Any, Any]) -> str | list[str]:
        if isinstance(place, slice):
            chosen = range(len(self))[place]
            if chosen.step == 1 and chosen:
                return self._part(chosen.start, chosen.stop)
            return [self[number] for number in chosen]
        number = range(len(self))[place]
        return self._raw(number)[:-1].decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), BLOCK):
            yield from self._part(begin, min(begin + BLOCK, len(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MappedNames):
            return np.array_equal(self.text, other.text)
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MappedNames({len(self):,} names)"


def ends_of(text: npt.NDArray[np.uint8]) -> Longs:
    """Return where each name ends, END included."""
    return np.flatnonzero(text == ord(END)) + 1
