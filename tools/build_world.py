"""Build the small ``world`` knowledge graph that ships with nscaching.

The facts come from the PyPI package countryinfo 1.0.1; pycountry spells out its language
and currency codes. Install both with::

    pip install "nscaching[world]"

and run::

    python tools/build_world.py [--out DIR]

which writes ``train.tsv``, ``valid.tsv`` and ``test.tsv`` (by default into the package's
data folder) and prints a table of the relations. The same input always gives the same bytes.
"""

import argparse
import importlib.metadata
import importlib.resources
import json
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pycountry

Triple = tuple[str, str, str]

SOURCE_VERSION = "1.0.1"
DEFAULT_OUT = Path(__file__).resolve().parents[1] / "src" / "nscaching" / "data" / "world"
SEED = 2019
HELD_OUT = 0.05  # share of each relation that goes to test, and again to valid
THRESHOLD = 1.5  # mean number of partners from which a side counts as "N"

# States that no longer exist; their facts repeat or contradict those of their successors.
DEFUNCT = {"ANT", "SCG"}

# Names the source writes backwards.
COUNTRY_NAMES = {
    "Virgin Islands, British": "British Virgin Islands",
    "Virgin Islands, U.S.": "United States Virgin Islands",
}

# Lists that hold another country's provinces: those of Spain, Trinidad and Tobago, and the
# British Virgin Islands.
FOREIGN_PROVINCES = {"SSD", "TLS", "IOT"}

# The two Congos have each other's list.
SWAPPED_PROVINCES = {"COD": "COG", "COG": "COD"}

# Entries that belong to another country (Andorra's parishes under Angola) or that are two
# names run together or cut short.
BAD_PROVINCES = {
    "AGO": {
        "Andorra la Vella",
        "Canillo",
        "Encamp",
        "Escaldes-Engordany",
        "La Massana",
        "Ordino",
        "Sant Julia de Loria",
    },
    "LTU": {"Neringa Pakruojo Rajonas"},
    "PHL": {"Davao City Davao"},
    "ZWE": {"ManicalandMashonaland Central", "Mashonaland"},
}

# Everyday names where the ISO 639 one is unusual or differs between releases of pycountry, and
# two codes the source has wrong.
LANGUAGE_NAMES = {
    "dv": "Dhivehi",
    "el": "Greek",
    "ht": "Haitian Creole",
    "ms": "Malay",
    "na": "Nauruan",
    "ne": "Nepali",
    "ny": "Chichewa",
    "oc": "Occitan",
    "pa": "Papiamento",  # listed for Aruba only, where it must mean "pap"
    "ps": "Pashto",
    "rs": "Serbian",  # no such code; listed for Serbia
    "sw": "Swahili",
    "to": "Tongan",
}

# Currencies the source still lists but that ISO 4217, and so pycountry, has withdrawn.
CURRENCY_NAMES = {
    "BGN": "Bulgarian Lev",
    "BYR": "Belarusian Ruble",
    "CUC": "Cuban Convertible Peso",
    "HRK": "Kuna",
    "MRO": "Ouguiya",
    "SLL": "Leone",
    "STD": "Dobra",
    "VEF": "Bolivar",
    "ZMK": "Zambian Kwacha",
}

# Units of account and fund codes: nobody pays with them.
FUND_CODES = {"BOV", "CHE", "CHW", "CLF", "USN", "USS", "UYI"}


@dataclass
class Country:
    """The cleaned facts of one country, before names are made unique."""

    code: str
    name: str
    region: str
    subregion: str
    intermediate_region: str
    capital: str
    borders: list[str]
    languages: list[str]
    currencies: list[str]
    time_zones: list[str]
    provinces: list[str]


def clean(value: object) -> str:
    """Return the value as one line of normalised text, or "" when there is none."""
    if isinstance(value, list) and len(value) == 1:  # one capital is wrapped in a list
        value = value[0]
    if not isinstance(value, str):
        return ""
    return " ".join(unicodedata.normalize("NFC", value).split())


def clean_list(values: object) -> list[str]:
    """Return the non-empty texts of a list, without repeats, in order."""
    if not isinstance(values, list):
        return []
    return list(dict.fromkeys(text for value in values if (text := clean(value))))


def load_records() -> dict[str, dict[str, Any]]:
    """Read the source and return one record per ISO alpha-3 code, sorted by code."""
    version = importlib.metadata.version("countryinfo")
    if version != SOURCE_VERSION:
        raise SystemExit(f"countryinfo {SOURCE_VERSION} is needed, found {version}")
    by_code: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in importlib.resources.files("countryinfo").joinpath("data").iterdir():
        if file.name.endswith(".json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            by_code[record["ISO"]["alpha3"]].append(record)
    # A few countries have a second, nearly empty record: keep the fullest one.
    return {code: max(by_code[code], key=fullness) for code in sorted(by_code)}


def fullness(record: dict[str, Any]) -> tuple[int, str]:
    """Count the fields that hold something; the name breaks ties."""
    return sum(bool(value) for value in record.values()), record["name"]


def usable(code: str, record: dict[str, Any]) -> bool:
    """Tell whether a record describes a place of today with people in it."""
    has_region = bool(clean(record["region"]) and clean(record["subregion"]))
    is_inhabited = bool(clean(record["capital"]) or record.get("languages"))
    return code not in DEFUNCT and has_region and is_inhabited


def read_country(code: str, records: dict[str, dict[str, Any]]) -> Country:
    """Clean one record."""
    record = records[code]
    name = clean(record["name"])
    capital = clean(record["capital"])
    return Country(
        code=code,
        name=COUNTRY_NAMES.get(name, name),
        region=clean(record["region"]),
        subregion=clean(record["subregion"]),
        intermediate_region=clean(record.get("intermediateregion")),
        capital="" if "/" in capital else capital,  # three cities in one value
        borders=clean_list(record.get("borders")),
        languages=[language_name(x) for x in clean_list(record.get("languages"))],
        currencies=[
            currency_name(x) for x in clean_list(record.get("currencies")) if x not in FUND_CODES
        ],
        time_zones=[time_zone_name(x) for x in clean_list(record.get("timezones"))],
        provinces=read_provinces(code, records),
    )


def read_provinces(code: str, records: dict[str, dict[str, Any]]) -> list[str]:
    """Return the provinces of a country, without the source's mistakes."""
    if code in FOREIGN_PROVINCES:
        return []
    names = clean_list(records[SWAPPED_PROVINCES.get(code, code)].get("provinces"))
    bad = BAD_PROVINCES.get(code, set())
    names = [name for name in names if name not in bad]
    # A single "province" is the whole country under one of its names.
    return names if len(names) > 1 else []


def language_name(code: str) -> str:
    """Spell out an ISO 639 code."""
    if code in LANGUAGE_NAMES:
        return LANGUAGE_NAMES[code]
    key = "alpha_2" if len(code) == 2 else "alpha_3"
    language = pycountry.languages.get(**{key: code})
    if language is None:
        raise SystemExit(f"unknown language code {code!r}")
    return clean(language.name)


def currency_name(code: str) -> str:
    """Spell out an ISO 4217 code."""
    if code in CURRENCY_NAMES:
        return CURRENCY_NAMES[code]
    currency = pycountry.currencies.get(alpha_3=code)
    if currency is None:
        raise SystemExit(f"unknown currency code {code!r}")
    return clean(currency.name)


def time_zone_name(text: str) -> str:
    """Write an offset as ``UTC+hh:mm`` with an ASCII sign."""
    match = re.fullmatch(r"UTC(?:([+-])(\d\d)(?::?(\d\d))?)?", text.replace("\N{MINUS SIGN}", "-"))
    if match is None:
        raise SystemExit(f"unknown time zone {text!r}")
    sign, hours, minutes = match.groups()
    return f"UTC{sign or '+'}{hours or '00'}:{minutes or '00'}"


def make_names_unique(countries: list[Country]) -> None:
    """Rename, in place, whatever would merge two different things into one entity.

    Country and region names never change; languages, currencies, capitals and provinces give
    way in this order, so the best-known bearer keeps the plain name.
    """
    taken = {c.name for c in countries}
    taken |= {x for c in countries for x in (c.region, c.subregion, c.intermediate_region) if x}

    languages = {x for c in countries for x in c.languages}
    for c in countries:
        c.languages = [f"{x} (language)" if x in taken else x for x in c.languages]
    taken |= languages

    currencies = {x for c in countries for x in c.currencies}
    for c in countries:
        c.currencies = [f"{x} (currency)" if x in taken else x for x in c.currencies]
    taken |= currencies

    capitals = Counter(c.capital for c in countries if c.capital)
    for c in countries:
        if capitals[c.capital] > 1:
            c.capital = f"{c.capital} ({c.name})"
        elif c.capital in taken:
            c.capital = f"{c.capital} (city)"
    taken |= set(capitals)

    provinces = Counter(x for c in countries for x in c.provinces)
    for c in countries:
        c.provinces = [
            f"{x} ({c.name})" if x in taken or provinces[x] > 1 else x for x in c.provinces
        ]
    check_names(countries)


def check_names(countries: list[Country]) -> None:
    """Stop if one name still stands for two things."""
    owner: dict[str, tuple[str, str]] = {}
    for c in countries:
        things = [
            (c.name, ("country", c.code)),
            (c.region, ("region", c.region)),
            (c.subregion, ("subregion", c.subregion)),
            (c.intermediate_region, ("intermediate region", c.intermediate_region)),
            (c.capital, ("capital", c.code)),
            *((x, ("language", x)) for x in c.languages),
            *((x, ("currency", x)) for x in c.currencies),
            *((x, ("time zone", x)) for x in c.time_zones),
            *((x, ("province", c.code)) for x in c.provinces),
        ]
        for name, thing in things:
            if name and owner.setdefault(name, thing) != thing:
                raise SystemExit(f"{name!r} is both {owner[name]} and {thing}")


def resolve_borders(countries: list[Country], records: dict[str, dict[str, Any]]) -> set[Triple]:
    """Return the borders with names for codes, each in both directions."""
    names: dict[str, str] = {}
    for c in countries:
        names[c.code] = c.name
        names[records[c.code]["ISO"]["alpha2"]] = c.name  # one border is given by alpha-2
    triples: set[Triple] = set()
    for c in countries:
        # Codes without a record (Kosovo) or with a skipped one are left out.
        for other in (names[x] for x in c.borders if x in names):
            triples |= {(c.name, "borders", other), (other, "borders", c.name)}
    return triples


def facts(c: Country) -> Iterator[Triple]:
    """Yield the facts of one country other than its borders."""
    yield c.name, "in_region", c.region
    yield c.name, "in_subregion", c.subregion
    if c.intermediate_region:
        yield c.name, "in_intermediate_region", c.intermediate_region
    if c.capital:
        yield c.name, "capital", c.capital
        # Derived facts: a second fact lets capitals and provinces be held out.
        yield c.capital, "in_subregion", c.subregion
    for province in c.provinces:
        yield c.name, "has_province", province
        yield province, "in_subregion", c.subregion
    yield from ((c.name, "speaks", x) for x in c.languages)
    yield from ((c.name, "uses_currency", x) for x in c.currencies)
    yield from ((c.name, "in_time_zone", x) for x in c.time_zones)


def build_triples() -> list[Triple]:
    """Return all facts, sorted."""
    records = load_records()
    countries = [read_country(x, records) for x in records if usable(x, records[x])]
    make_names_unique(countries)
    triples = resolve_borders(countries, records)
    for country in countries:
        triples.update(facts(country))
    return sorted(triples)


def split(triples: list[Triple], seed: int) -> dict[str, list[Triple]]:
    """Hold out a share of every relation for test and valid.

    Triples over the same two entities move together, so that no held-out fact is answered by
    its mirror image, and a group stays in train where it holds the last fact of an entity.
    """
    groups: dict[tuple[str, ...], list[Triple]] = defaultdict(list)
    for triple in triples:
        groups[tuple(sorted((triple[0], triple[2])))].append(triple)
    pairs = sorted(groups)
    random.Random(seed).shuffle(pairs)

    sizes = Counter(r for _, r, _ in triples)
    in_train = Counter(entity for h, _, t in triples for entity in (h, t))
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    for part in ("test", "valid"):
        quota = {r: max(1, round(HELD_OUT * n)) for r, n in sizes.items()}
        kept_back = []
        for pair in pairs:
            group = groups[pair]
            wanted = Counter(r for _, r, _ in group)
            within_quota = all(quota[r] >= n for r, n in wanted.items())
            # Every triple of the group has both entities of the pair.
            if within_quota and all(in_train[entity] > len(group) for entity in pair):
                parts[part] += group
                in_train.subtract({entity: len(group) for entity in pair})
                for r, n in wanted.items():
                    quota[r] -= n
            else:
                kept_back.append(pair)
        pairs = kept_back
    parts["train"] = [triple for pair in pairs for triple in groups[pair]]
    return {part: sorted(chosen) for part, chosen in parts.items()}


def partners(triples: Iterable[Triple], relation: str) -> tuple[float, float]:
    """Return the mean tails per head and heads per tail of a relation."""
    pairs = [(h, t) for h, r, t in triples if r == relation]
    return len(pairs) / len({h for h, _ in pairs}), len(pairs) / len({t for _, t in pairs})


def mapping_class(tph: float, hpt: float) -> str:
    """Name the mapping class: 1-1, 1-N, N-1 or N-N."""
    return f"{'N' if hpt >= THRESHOLD else '1'}-{'N' if tph >= THRESHOLD else '1'}"


def print_table(parts: dict[str, list[Triple]]) -> None:
    """Print the relations with their counts and mapping classes."""
    everything = [triple for chosen in parts.values() for triple in chosen]
    counts = {part: Counter(r for _, r, _ in chosen) for part, chosen in parts.items()}
    total = Counter(r for _, r, _ in everything)
    line = "{:<24}{:>7}{:>8}{:>8}{:>7}{:>7}{:>7}"
    print(line.format("relation", "count", "tph", "hpt", "class", "valid", "test"))
    for relation in sorted(total):
        tph, hpt = partners(parts["train"], relation)
        held_out = counts["valid"][relation], counts["test"][relation]
        numbers = total[relation], f"{tph:.2f}", f"{hpt:.2f}", mapping_class(tph, hpt)
        print(line.format(relation, *numbers, *held_out))
    entities = {entity for h, _, t in everything for entity in (h, t)}
    sizes = ", ".join(f"{len(chosen)} {part}" for part, chosen in parts.items())
    print(f"{len(everything)} triples ({sizes}), {len(entities)} entities")


def main() -> None:
    """Build the data set and write its three files."""
    parser = argparse.ArgumentParser(description="Build the world data set.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder to write into")
    out: Path = parser.parse_args().out
    parts = split(build_triples(), SEED)
    out.mkdir(parents=True, exist_ok=True)
    for part, chosen in parts.items():
        text = "".join("\t".join(triple) + "\n" for triple in chosen)
        (out / f"{part}.tsv").write_text(text, encoding="utf-8", newline="\n")
    print_table(parts)


if __name__ == "__main__":
    main()
