"""Settings that were found for a data set and a scoring function, by name.

A file NAME.toml names data and model and has tables: ``[paper]``, tuned under Bernoulli sampling on
the paper's grid and kept for all samplers; ``[cache]``, what differs from it when tuned for the
cache; ``[best]``, settings with the softmax over cached entities. ``[paper]`` and ``[best]`` say
what differs from the package's defaults.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig, check_type, read_toml
from nscaching.errors import UserError, unknown
from nscaching.registry import refuse_outside_code

__all__ = ["FOLDER", "VARIANTS", "load", "names", "parse", "variants"]

FOLDER = Path(__file__).parent
VARIANTS = {"cache": ("paper", "cache"), "paper": ("paper",), "best": ("best",)}
"""The tables of each variant, the later ones over the earlier. A plain name is the first it has."""


def names(folder: Path = FOLDER) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def variants(name: str, folder: Path = FOLDER) -> list[str]:
    """Return the variants that a preset has."""
    return _variants(_read(name, folder)[1])


def parse(text: str) -> tuple[str, str | None]:
    """Split NAME or NAME:VARIANT, as a user writes it."""
    name, colon, variant = text.partition(":")
    return name, variant if colon else None


def load(
    name: str, variant: str | None = None, folder: Path = FOLDER, trust: bool = False
) -> tuple[str, TrainConfig]:
    """Return the data and the settings of a preset; without a variant, of the first it has."""
    path, values = _read(name, folder)
    has = _variants(values)
    variant = has[0] if variant is None else variant
    if variant not in has:
        raise unknown(f"variant of the preset {name}:", variant, has)
    settings: dict[str, Any] = {"model": values["model"]}
    for table in VARIANTS[variant]:
        settings |= check_type(f"{path}: {table}", dict, values.get(table, {}))
    if not trust:
        refuse_outside_code(path, settings)
    return values["data"], TrainConfig.from_dict(settings, f"{path} [{variant}]")


def _read(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of presets")
    if name.casefold() not in names(folder):
        raise unknown("preset", name, names(folder))
    path = folder / f"{name.casefold()}.toml"
    values = read_toml(path)
    for key in values:
        if key not in ("data", "model", *VARIANTS):
            raise UserError(f"{path}: {unknown('key', key, ('data', 'model', *VARIANTS))}")
    for key in ("data", "model"):
        check_type(f"{path}: {key}", str, values.get(key))
    return path, values


def _variants(values: Mapping[str, Any]) -> list[str]:
    tuned = [name for name in VARIANTS if name != "best"]  # whose tables may be left out if empty
    if "best" not in values:
        return tuned
    return [*tuned, "best"] if values.keys() & set(tuned) else ["best"]
