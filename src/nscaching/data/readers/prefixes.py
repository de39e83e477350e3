"""IRIs as people read them: ``dbr:Berlin`` for http://dbpedia.org/resource/Berlin."""

from collections.abc import Mapping

W3, PURL, DBPEDIA = "http://www.w3.org", "http://purl.org", "http://dbpedia.org"
WIKIDATA = "http://www.wikidata.org"
WELL_KNOWN = {
    "rdf": f"{W3}/1999/02/22-rdf-syntax-ns#",
    "rdfs": f"{W3}/2000/01/rdf-schema#",
    "owl": f"{W3}/2002/07/owl#",
    "xsd": f"{W3}/2001/XMLSchema#",
    "skos": f"{W3}/2004/02/skos/core#",
    "geo": f"{W3}/2003/01/geo/wgs84_pos#",
    "prov": f"{W3}/ns/prov#",
    "dcat": f"{W3}/ns/dcat#",
    "sh": f"{W3}/ns/shacl#",
    "wn": f"{W3}/2006/03/wn/wn20/schema/",
    "dc": f"{PURL}/dc/elements/1.1/",
    "dcterms": f"{PURL}/dc/terms/",
    "bibo": f"{PURL}/ontology/bibo/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "schema": "http://schema.org/",
    "schemas": "https://schema.org/",
    "dbr": f"{DBPEDIA}/resource/",
    "dbo": f"{DBPEDIA}/ontology/",
    "dbp": f"{DBPEDIA}/property/",
    "dbc": f"{DBPEDIA}/resource/Category:",
    "wd": f"{WIKIDATA}/entity/",
    "wdt": f"{WIKIDATA}/prop/direct/",
    "gn": "http://www.geonames.org/ontology#",
    "sws": "http://sws.geonames.org/",
    "yago": "http://yago-knowledge.org/resource/",
    "fb": "http://rdf.freebase.com/ns/",
}


class Prefixes:
    """Prefixes of the files themselves, then the well-known ones."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._by_namespace: dict[str, str] | None = None

    def add(self, prefixes: Mapping[str, str]) -> None:
        """Add the prefixes that a file declares; a prefix that was declared before stays."""
        self._own = {**prefixes, **self._own}
        self._by_namespace = None

    def shorten(self, name: str) -> str:
        """Return ``prefix:rest`` for an IRI (or the type of a literal), or the name as it is."""
        if name.startswith('"'):
            text, mark, kind = name.rpartition("^^<")
            return f"{text}^^{self.shorten(kind[:-1])}" if mark and name.endswith(">") else name
        if self._by_namespace is None:
            known = WELL_KNOWN | self._own  # the declarations of a file go first
            own_last = sorted(known, key=lambda prefix: prefix in self._own)
            self._by_namespace = {known[prefix]: prefix for prefix in own_last if known[prefix]}
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
