"""Search over a million names: each place where a word begins, sorted by what follows there."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nscaching.data.index import Longs

LINE, PART = "\n", "\x1f"  # between the names of two entities, and between two names of one
MOST = 200  # characters of a name that are searched
SORTED = 24  # bytes after a place by which the places are sorted
CHECKED = 20_000  # places whose whole text is compared, those of the most linked entities
SCANNED = 5_000  # entities in which the other words of a text are looked for
MARKS = re.compile("[\u0300-\u036f]+")  # accents, once they are apart from their letters

Bytes = npt.NDArray[np.uint8]


def fold(text: str) -> str:
    """Return text without case and accents."""
    if text.isascii():
        return text.lower()
    return MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()


class Range(NamedTuple):
    """The sorted places from which a text may begin: those of one of its words."""

    begin: int
    end: int
    before: int  # bytes of the text before that word

    @property
    def size(self) -> int:
        return self.end - self.begin


class NameIndex:
    """Finds entities by the beginnings of the words of their names, the most linked first."""

    def __init__(self, names: Iterable[Sequence[str]], links: Longs) -> None:
        """Index the names of each entity [n]; ``links`` [n] says how often each is linked."""
        self.text = _joined(names)
        self.size = len(links)
        self.by_links = np.argsort(-links, kind="stable").astype(np.int32)  # most linked first
        rank = np.empty(self.size, dtype=np.int32)
        rank[self.by_links] = np.arange(self.size, dtype=np.int32)
        line = np.flatnonzero(self.text == ord(LINE)) + 1
        self.line = np.concatenate([[0], line])[: self.size + 1]  # where each entity's names begin
        word, first = _beginnings(self.text)
        at = np.flatnonzero(word | first)
        at = at[at < len(self.text) - 1]
        at = at[_order(self.text, at)]
        self.owner = (np.searchsorted(self.line, at, "right") - 1).astype(np.int32)
        self.rank = rank[self.owner]  # of the entity by its links, 0 the most linked
        self.first = first[at]
        self.at = at.astype(np.int32 if len(self.text) < 2**31 else np.int64)

    def search(self, text: str, most: int) -> list[int]:
        """Return the entities that a text finds, the best first; of no text the most linked."""
        asked = fold(text[:MOST]).strip()
        if not asked:
            return [int(entity) for entity in self.by_links[:most]]
        found = self._phrase(asked.encode(), most)
        words = asked.split()
        if len(found) < most and len(words) > 1:
            seen = set(found)
            found += [each for each in self._words(words, most) if each not in seen]
        return found[:most]

    def near(self, text: str, most: int) -> list[int]:
        """Return entities whose names begin as a text does, as far as one does."""
        asked = fold(text[:MOST]).strip()
        low, high = 0, len(asked)  # the longest beginning that finds something
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.search(asked[:middle], 1) else (low, middle - 1)
        return self.search(asked[:low], most) if asked[:low].strip() else []

    def _phrase(self, asked: bytes, most: int) -> list[int]:
        """Find a text as it stands: whole names first, then beginnings, then later words."""
        some = min(self._ranges(asked), key=lambda each: each.size)
        places = self._best(some, CHECKED)
        if some.before or len(asked) > SORTED:
            places = places[self._stands(asked, self.at[places].astype(np.int64) - some.before)]
        if not len(places):
            return []
        begin = self.at[places].astype(np.int64) - some.before
        kind = np.where(_ends_name(self.text[np.maximum(begin - 1, 0)]) | (begin == 0), 1, 2)
        after = self.text[np.minimum(begin + len(asked), len(self.text) - 1)]
        kind[(kind == 1) & _ends_name(after)] = 0
        rank = kind * np.int64(self.size) + self.rank[places]
        few = min(len(places), 8 * most)  # an entity may stand there several times
        chosen = np.argpartition(rank, few - 1)[:few]
        chosen = chosen[np.argsort(rank[chosen], kind="stable")]
        return list(dict.fromkeys(self.owner[places[chosen]].tolist()))[:most]

    def _words(self, words: Sequence[str], most: int) -> list[int]:
        """Find entities that have all words, in any order."""
        ranges = [min(self._ranges(word.encode()), key=lambda each: each.size) for word in words]
        rarest = min(ranges, key=lambda each: each.size)
        if not rarest.size:
            return []
        places = self._best(rarest, SCANNED)
        owners = self.by_links[np.unique(self.rank[places])]
        patterns = [re.compile(rb"(?:^|[^0-9a-z\x80-\xff])" + re.escape(w.encode())) for w in words]
        found: list[int] = []
        for owner in owners.tolist():
            line = self.text[self.line[owner] : self.line[owner + 1]].tobytes()
            if all(pattern.search(line) for pattern in patterns):
                found.append(owner)
                if len(found) == most:
                    break
        return found

    def _best(self, some: Range, count: int) -> Longs:
        """Return the places of a range; of many those of the most linked entities.

        Half of them where a name begins, as far as there are so many.
        """
        if some.size <= count:
            return np.arange(some.begin, some.end)
        rank, first = self.rank[some.begin : some.end], self.first[some.begin : some.end]
        both = self._lowest(rank, count // 2), self._lowest(rank, count // 2, first)
        return some.begin + np.unique(np.concatenate(both))

    def _lowest(
        self, rank: npt.NDArray[np.int32], count: int, only: npt.NDArray[np.bool_] | None = None
    ) -> Longs:
        """Return the places of about so many lowest ranks: bounds are tried, nothing is sorted."""
        bound = max(1, self.size * count // len(rank))
        while True:
            low = rank < bound if only is None else only & (rank < bound)
            found: Longs = np.flatnonzero(low)
            if len(found) >= count // 4 or bound >= self.size:
                return found[:count] if bound >= self.size else found
            bound = min(self.size, 4 * bound)

    def _stands(self, asked: bytes, begin: Longs) -> npt.NDArray[np.bool_]:
        """Say of each place whether a text stands there."""
        wanted = np.frombuffer(asked, np.uint8)
        inside = (begin >= 0) & (begin + len(asked) <= len(self.text))
        places = np.where(inside, begin, 0)[:, None] + np.arange(len(asked))
        same = (self.text[np.minimum(places, len(self.text) - 1)] == wanted).all(1)
        stands: npt.NDArray[np.bool_] = inside & same
        return stands

    def _ranges(self, asked: bytes) -> Iterator[Range]:
        """Yield where the text itself, and the text from each of its later words, may stand."""
        word, _ = _beginnings(np.frombuffer(asked, np.uint8))
        for before in {0, *np.flatnonzero(word).tolist()}:
            begin, end = (self._bound(asked[before : before + SORTED], past) for past in (0, 1))
            yield Range(begin, end, before)

    def _bound(self, key: bytes, past: int) -> int:
        """Return the first sorted place whose text is not before (or is past) a beginning."""
        low, high, size = 0, len(self.at), len(key)
        while low < high:
            middle = (low + high) // 2
            at = self.at[middle]
            here = self.text[at : at + size].tobytes()
            if here < key or (past and here == key):
                low = middle + 1
            else:
                high = middle
        return low


def _joined(names: Iterable[Sequence[str]]) -> Bytes:
    lines = [PART.join(name[:MOST] for name in dict.fromkeys(some)) for some in names]
    text = LINE.join(lines)
    if text.count(LINE) > max(len(lines) - 1, 0):  # a name may hold anything
        text = LINE.join(line.replace(LINE, " ") for line in lines)
    return np.frombuffer((fold(text) + LINE).encode(), np.uint8)


def _beginnings(text: Bytes) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each byte whether a word begins there, and whether a name does."""
    inside = np.zeros(256, dtype=bool)
    inside[[*b"0123456789abcdefghijklmnopqrstuvwxyz", *range(0x80, 0x100)]] = True
    word = inside[text]
    first = np.ones(len(text), dtype=bool)
    first[1:] = _ends_name(text[:-1])
    begins = word.copy()
    begins[1:] &= ~word[:-1]
    return begins, first


def _ends_name(byte: Bytes) -> npt.NDArray[np.bool_]:
    ends: npt.NDArray[np.bool_] = (byte == ord(LINE)) | (byte == ord(PART))
    return ends


def _order(text: Bytes, at: Longs) -> Longs:
    """Return the order of places by the bytes that follow them."""
    padded = np.concatenate([text, np.zeros(SORTED, np.uint8)])
    keys = []
    for begin in range(0, SORTED, 8):
        number = np.zeros(len(at), dtype=np.uint64)
        for byte in range(begin, begin + 8):
            number = (number << np.uint64(8)) | padded[at + byte]
        keys.append(number)
    return np.lexsort(keys[::-1])
