"""RDF files → triples: N-Triples, Turtle and N-Quads, by pyoxigraph, as a stream."""

import itertools
import re
from array import array
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nscaching.data.index import Ids
from nscaching.data.prefixes import Prefixes
from nscaching.data.readers.blocks import CONTROL, LINE_LIMIT, Progress, filled_lines, read_blocks
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.table import file_suffix
from nscaching.errors import UserError, counted, flag

FORMATS = {".nt": "N_TRIPLES", ".ttl": "TURTLE", ".nq": "N_QUADS"}
RDF_SUFFIXES = tuple(FORMATS)
NOT_READ = (".rdf", ".owl", ".xml", ".trig", ".jsonld", ".n3")
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"

# The parser gives random names to the nodes that Turtle leaves without a name.
ANONYMOUS = re.compile(r"[a-f][0-9a-f]{23,31}")


def is_rdf(path: Path) -> bool:
    """Say whether the name of a file ends as RDF does; refuse RDF formats that are not read."""
    if file_suffix(path) in NOT_READ:
        known = ", ".join(RDF_SUFFIXES)
        raise UserError(f"{path}: of RDF, only {known} (and .gz of them) are read: convert it")
    return file_suffix(path) in RDF_SUFFIXES


class RdfReader:
    """Reads RDF files into tables of names; an entity is named by its IRI, ``_:x`` or literal."""

    def __init__(self, entities: NameTable, relations: NameTable, literals: bool = False) -> None:
        self.entities, self.relations, self.literals = entities, relations, literals
        self.notes: list[str] = []
        self.prefixes = Prefixes()
        self._texts: dict[str, tuple[int, str]] = {}  # name → (rank, text) of its best label
        self._anonymous: dict[str, str] = {}

    def read(self, path: Path, progress: Progress | None = None) -> Ids:
        """Read a file into ids [n, 3], adding new names to the tables."""
        ox = _library(path)
        suffix = file_suffix(path)
        stream = _Stream(path, progress, skips_blank=suffix != ".ttl")
        ids, count = array("i"), Counter[str]()
        graphs: set[str] = set()
        try:
            parser = ox.parse(stream, getattr(ox.RdfFormat, FORMATS[suffix]))
            for quad in parser:
                if suffix == ".nq" and type(quad.graph_name) is not ox.DefaultGraph:
                    graphs.add(quad.graph_name.value)
                predicate, tail = quad.predicate.value, quad.object
                kind = type(tail)
                if kind is ox.Literal:
                    if predicate == LABEL:
                        self._hear_label(self._name(ox, quad.subject, suffix), tail)
                        count["labels"] += 1
                    if not self.literals:
                        count["literals"] += 1
                        continue
                    # As N-Triples write it, in one line.
                    name = CONTROL.sub(lambda odd: f"\\u{ord(odd[0]):04X}", str(tail))
                elif kind is ox.Triple:  # of RDF 1.2: a statement about a statement
                    count["quoted"] += 1
                    continue
                else:
                    name = self._name(ox, tail, suffix)
                ids.append(self.entities[self._name(ox, quad.subject, suffix)])
                ids.append(self.relations[predicate])
                ids.append(self.entities[name])
            self.prefixes.add(parser.prefixes)
        except SyntaxError as error:
            raise UserError(f"{path}:{stream.line_of(error.lineno)}: {_reason(error)}") from None
        except MemoryError as error:
            if "buffer" not in str(error):
                raise
            what = f"a name or literal is longer than {LINE_LIMIT:,} bytes"
            raise UserError(f"{path}:{stream.line}: {what}") from None
        except Exception:
            if stream.error is None:
                raise
            raise stream.error from None  # the parser may raise another error instead
        self._note(path.name, count, len(graphs))
        if not ids:
            literals = f" but {count['literals']:,} with a literal, which {flag('literals')} takes"
            left = literals if count["literals"] else ""
            raise UserError(f"{path}: the file holds no triples{left}")
        return np.array(ids, dtype=np.int32).reshape(-1, 3)

    def labels(self) -> dict[str, str]:
        """Return name → label: the rdfs:label, English if possible, else the short form."""
        return {
            name: text
            for name in itertools.chain(self.entities, self.relations)
            if (text := self._texts.get(name, (0, ""))[1] or self.prefixes.shorten(name)) != name
        }

    def line_naming(self, path: Path, name: str) -> int | None:
        """Return the number of the first line of a file, read before, that spells a name."""
        whole = name if name.startswith(("_:", '"')) else f"<{name}>"
        short = re.compile(rf"(?<![\w:<]){re.escape(self.prefixes.shorten(name))}(?![\w:/#-])")
        for number, line in filled_lines(path, read_blocks(path)):
            if whole in line or short.search(line):
                return number
        return None

    def _name(self, ox: ModuleType, node: Any, suffix: str) -> str:  # noqa: ANN401
        value: str = node.value
        if type(node) is ox.NamedNode:
            return value
        if suffix == ".ttl" and ANONYMOUS.fullmatch(value):
            # Numbered by first occurrence, over all files. Brackets: no file can use such a name.
            return self._anonymous.setdefault(value, f"_:[{len(self._anonymous) + 1}]")
        return f"_:{value}"

    def _hear_label(self, name: str, literal: Any) -> None:  # noqa: ANN401
        text = " ".join(CONTROL.sub(" ", literal.value).split())
        language = (literal.language or "").lower()
        rank = 4 if language == "en" else 3 if language.startswith("en-") else 2 - bool(language)
        if text and rank > self._texts.get(name, (0, ""))[0]:
            self._texts[name] = rank, text

    def _note(self, file: str, count: Counter[str], graphs: int) -> None:
        if literals := count["literals"]:
            texts = count["labels"]
            labels = f" ({texts:,} rdfs:label are used as labels)" if texts else ""
            triples = counted(literals, "triple with a literal was", "triples with a literal were")
            what = f"{triples} left out{labels}"
            self.notes.append(f"{file}: {what}; {flag('literals')} takes them")
        if quoted := count["quoted"]:
            statements = counted(
                quoted, "statement about a triple was", "statements about triples were"
            )
            self.notes.append(f"{file}: {statements} left out")
        if graphs > 1:
            self.notes.append(f"{file}: the names of its {graphs:,} graphs were dropped")


class _Stream:
    """The file as the parser reads it: in bounded pieces, with the error that ended reading.

    The parser is slow at blank lines: blocks of nothing else are skipped, if ``skips_blank``.
    """

    def __init__(self, path: Path, progress: Progress | None, skips_blank: bool) -> None:
        self.line = 1
        self.error: UserError | None = None
        self._blocks = read_blocks(path, progress)
        self._block = memoryview(b"")
        self._skips_blank = skips_blank
        self._skipped = [(0, 0)]  # (the parser's number of a line, lines skipped before it)

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes: given more, the parser would abort the process."""
        if not self._block:
            try:
                self._block = memoryview(self._next())
            except UserError as error:
                self.error = error
                raise
        piece, self._block = self._block[:size], self._block[size:]
        return bytes(piece)

    def _next(self) -> bytes:
        skipped = self._skipped[-1][1]
        for line, block in self._blocks:
            self.line = line
            if not self._skips_blank or block.strip(b" \t\r\n"):
                self._skipped.append((line - skipped, skipped))
                return block
            skipped += block.count(b"\n")
        return b""

    def line_of(self, parsed: int | None) -> int:
        """Return the number in the file of a line that the parser counted."""
        if not parsed:
            return self.line
        return parsed + max(skipped for first, skipped in self._skipped if first <= parsed)


def _library(path: Path) -> ModuleType:
    try:
        import pyoxigraph
    except ImportError:
        what = 'RDF is read by pyoxigraph, which is not installed: pip install "nscaching[rdf]"'
        raise UserError(f"{path}: {what}") from None
    return pyoxigraph


def _reason(error: SyntaxError) -> str:
    """Return the message of the parser without the place, in at most 200 characters."""
    text = re.sub(r"^Parser error .*?: ", "", " ".join(error.msg.split()))
    return text if len(text) <= 200 else text[:200] + "…"
