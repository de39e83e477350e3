"""Settings that were found for a data set and a scoring function, by name.

A file NAME.toml names data and model and has two tables: ``[paper]``, tuned under Bernoulli
sampling on the paper's grid and kept for all samplers, and ``[cache]``, what differs from it when
tuned for the cache.
"""

from pathlib import Path
from typing import Any, Literal, get_args

from nscaching.config import TrainConfig, check_type, read_toml
from nscaching.errors import UserError, unknown
from nscaching.registry import refuse_outside_code

__all__ = ["FOLDER", "VARIANTS", "Variant", "load", "names", "parse"]

FOLDER = Path(__file__).parent
Variant = Literal["cache", "paper"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


def names(folder: Path = FOLDER) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def parse(text: str) -> tuple[str, Variant]:
    """Split NAME or NAME:VARIANT, as a user writes it."""
    name, colon, variant = text.partition(":")
    for known in VARIANTS:
        if known == (variant if colon else "cache"):
            return name, known
    raise unknown(f"variant of the preset {name}:", variant, VARIANTS)


def load(
    name: str, variant: Variant = "cache", folder: Path = FOLDER, trust: bool = False
) -> tuple[str, TrainConfig]:
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
    settings: dict[str, Any] = {"model": values["model"]}
    for table in ("paper", "cache") if variant == "cache" else ("paper",):
        settings |= check_type(f"{path}: {table}", dict, values.get(table, {}))
    if not trust:
        refuse_outside_code(path, settings)
    return values["data"], TrainConfig.from_dict(settings, f"{path} [{variant}]")
